"""What is wrong with a spec."""

from dataclasses import replace
from typing import Any

import pytest

from midflight.controller.spec import Container, Kind, Spec, Sync
from midflight.controller.spec_check import check, refusal
from midflight.errors import Exists, UsageError
from tests.controller.scenario import Scenario

ETJOB = Spec(Kind.ETJOB, "job", "python train.py", workers=3, min_workers=1, max_workers=9)
PYTORCHJOB = Spec(Kind.PYTORCHJOB, "job", "python train.py")


def objection(spec: Spec = ETJOB, **changes: Any) -> str:
    with pytest.raises(UsageError) as raised:
        check(replace(spec, **changes))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def in_container(**changes: Any) -> str:
    return objection(container=Container(**changes))


def test_good_specs_pass() -> None:
    check(ETJOB)
    check(PYTORCHJOB)
    check(replace(ETJOB, name="a" * 49, cpu="500m", memory="2Gi", env={"A.b-c": 'say "hi"\\'}))
    check(replace(PYTORCHJOB, nproc_per_node="auto", running_timeout=0.0))
    container = Container(
        devices=("amd.com/gpu=1",), data=("pvc:/data",), data_dirs=("/a:/b",), config_files=("/a",)
    )
    check(replace(ETJOB, container=container, sync=Sync("git", "https://example.org/x.git")))


def test_names() -> None:
    assert objection(name="") == "--name must be set"
    assert objection(name="a" * 50).startswith("the len 50 of name aaaa")
    assert objection(name="a" * 50).endswith("is too long, it should be at most 49")
    for name in ("Job", "-job", "job-", "a.b", "a_b", "a/b", "..", "job\n"):
        assert "the job name must consist of lower case alphanumeric" in objection(name=name)
    for namespace in ("", "A", "a/b", "..", "a" * 64):
        assert "the namespace must consist of" in objection(namespace=namespace)
    assert objection(command="  ").startswith("not found command args")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpus": -1}, "--gpus is invalid"),
        ({"workers": 0}, "--workers is invalid"),
        ({"cpu": "two"}, "--cpu is invalid"),
        ({"memory": "2GB"}, "--memory is invalid"),
        ({"nproc_per_node": "0"}, "--nproc-per-node is invalid"),
        ({"min_workers": 0}, "--min-workers is invalid"),
        ({"min_workers": 4}, "--workers 3 is not between --min-workers 4 and --max-workers 9"),
        ({"max_workers": 2}, "--workers 3 is not between --min-workers 1 and --max-workers 2"),
        ({"min_workers": 3, "max_workers": 2}, "--max-workers 2 is less than --min-workers 3"),
        ({"clean_policy": "Some"}, "unsupported cleanTaskPolicy Some"),
        ({"restart_policy": "Always"}, "--job-restart-policy is invalid"),
        ({"worker_restart_policy": "always"}, "--worker-restart-policy is invalid"),
        ({"retry": -1}, "--retry is invalid"),
        ({"backoff_limit": -1}, "--job-backoff-limit is invalid"),
        ({"running_timeout": -1.0}, "--running-timeout is invalid"),
        ({"ttl_after_finished": -1.0}, "--ttl-after-finished is invalid"),
        ({"max_wait_time": float("inf")}, "--max-wait-time is invalid"),
        ({"env": {"1A": "x"}}, "'1A' is not a name for a variable"),
        ({"env": {"A=B": "x"}}, "'A=B' is not a name for a variable"),
        ({"env": {"A": "\0"}}, "zero byte"),
        ({"selectors": {"": "x"}}, "--selector is invalid"),
        ({"working_dir": "here"}, "--working-dir must be absolute"),
        ({"run_in": "nowhere"}, "--run-in is invalid"),
        ({"sync": Sync("hdfs", "x")}, "Unknown sync mode: hdfs; use git or rsync"),
        ({"sync": Sync("git", "")}, "--syncSource should be set when syncMode is set"),
        ({"sync": Sync("git", "--upload-pack=x")}, "starts with '-'"),
    ],
)
def test_values_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    assert words in objection(**changes)


def test_bounds_belong_together() -> None:
    assert "needs --min-workers" in objection(PYTORCHJOB, max_workers=3)
    assert "--min-workers is missing" in objection(min_workers=None)


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("amd.com/gpu", "invalid device 'amd.com/gpu', refer to amd.com/gpu=1"),
        ("=1", "invalid device"),
        ("a b=1", "device name 'a b' is not a qualified name"),
        ("nvidia.com/gpu=1", "please use '--gpus N' instead of '--device nvidia.com/gpu=N'"),
        ("amd.com/gpu=x", "device value 'x' is not a valid quantity"),
    ],
)
def test_devices(device: str, words: str) -> None:
    assert words in in_container(devices=(device,))


def test_data_and_files() -> None:
    wrong_form = "dataset pvc has incorrect format, should like data_name:/data0"
    assert in_container(data=("pvc",)) == wrong_form
    assert "pvc is repeated" in in_container(data=("pvc:/a", "pvc:/b"))
    assert "volume name is too short" in in_container(data=("p:/a",))
    assert "invalid dataDir: 'a' must be absolute" in in_container(data=("pvc:a",))
    assert "dataDir can't be '/'" in in_container(data_dirs=("/:/data",))
    assert "invalid DataDir: '/a:/b:/c'" in in_container(data_dirs=("/a:/b:/c",))
    assert "invalid format for assigning config file" in in_container(config_files=("/a:/b:/c",))
    assert "must be absolute path" in in_container(config_files=("/a:b",))
    assert "--share-memory is invalid" in in_container(share_memory="lots")


def test_a_name_that_is_taken_is_refused() -> None:
    s = Scenario()
    refusal(s.cluster, ETJOB)
    s.etjob()
    with pytest.raises(Exists) as raised:
        refusal(s.cluster, ETJOB)
    text = "the job job is already exist, please delete it first. use 'arena delete job'"
    assert str(raised.value) == text
    refusal(s.cluster, replace(ETJOB, namespace="elsewhere"))


def test_a_name_is_taken_until_its_job_is_gone() -> None:
    s = Scenario(held=True)
    s.etjob()
    s.delete()
    with pytest.raises(Exists, match="still being deleted"):
        refusal(s.cluster, ETJOB)
