"""What a pod may do, by its template, its job and its cluster; and images that are too old."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from midflight.kubernetes import names
from midflight.kubernetes.operator.observed import sighting
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.code import code_pod
from midflight.kubernetes.pods.security import notes
from midflight.kubernetes.resources.pod import read_pod
from midflight.provide import provide
from tests.kubernetes.job_objects import (
    job_of,
    pod_spec,
    pytorch_job,
    training_job,
)
from tests.kubernetes.rendered_pods import (
    ELASTIC,
    PLAIN,
    SYNC,
    TORCHRUN,
    chief,
    main,
    mounts,
    security,
    worker,
)
from tests.pythons import find_python

# --- security -------------------------------------------------------------------------------------


def test_a_user_that_a_template_names_is_kept_and_root_is_noted() -> None:
    obj = training_job()
    pod_spec(obj, "worker")["securityContext"] = {"runAsUser": 0}
    pod = worker(obj)
    assert pod["spec"]["securityContext"]["runAsUser"] == 0
    assert "runAsNonRoot" not in pod["spec"]["securityContext"]
    assert notes(obj) == ["worker pods run as root: their template says so"]
    assert notes(training_job()) == []


def test_what_a_template_asks_for_beyond_the_profile_is_kept_and_noted() -> None:
    obj = training_job()
    pod_spec(obj, "worker")["hostNetwork"] = True
    context = {"capabilities": {"add": ["IPC_LOCK"]}, "readOnlyRootFilesystem": False}
    pod_spec(obj, "worker")["containers"][0]["securityContext"] = context
    pod = worker(obj)
    assert security(pod)["capabilities"] == {"add": ["IPC_LOCK"], "drop": ["ALL"]}
    assert security(pod)["readOnlyRootFilesystem"] is False
    assert "/tmp" not in mounts(pod)
    assert pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert [note.split(":")[0] for note in notes(obj)] == [
        "worker pods have hostNetwork",
        "worker pods add the capability IPC_LOCK",
    ]


def test_a_privileged_container_is_still_one_that_kubernetes_accepts() -> None:
    obj = training_job()
    pod_spec(obj, "worker")["containers"][0]["securityContext"] = {"privileged": True}
    assert security(worker(obj)) == {"privileged": True}


def test_an_old_image_runs_as_it_always_did_if_the_job_says_so() -> None:
    obj = training_job()
    obj["metadata"]["annotations"] = {"midflight.dev/security": "image"}
    pod = worker(obj)
    assert security(pod) == {"allowPrivilegeEscalation": False}
    assert pod["spec"]["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert not {"/tmp", "/root"} & mounts(pod).keys()
    assert "annotation midflight.dev/security" in notes(obj)[0]


def test_an_operator_s_choice_holds_for_jobs_that_say_nothing() -> None:
    obj = training_job()
    assert security(worker(obj, site=PodDefaults(security="baseline"))) == {
        "allowPrivilegeEscalation": False
    }
    written = worker(obj, site=PodDefaults(security="as-written"))["spec"]
    assert "securityContext" not in {**written, **written["containers"][0]}
    for said in ("restricted", "baseline", "as-written", "image"):
        obj["metadata"]["annotations"] = {"midflight.dev/security": said}
        level = "baseline" if said == "image" else said
        found = worker(obj, site=PodDefaults(security="as-written"))
        assert found == worker(obj, site=PodDefaults(security=level))
        assert bool(notes(obj)) == (level != "restricted")


SITE = PodDefaults(
    "midflight:1",
    limits=(("cpu", "2"), ("memory", "4Gi")),
    tolerations=({"key": "gpu", "operator": "Exists"},),
    pull_secrets=("registry",),
)


def test_a_cluster_s_defaults_reach_every_pod_of_a_job() -> None:
    obj = training_job(sync=SYNC)
    pod_spec(obj, "launcher")["imagePullSecrets"] = [{"name": "mine"}]
    pods = [chief(obj, SITE), worker(obj, site=SITE), code_pod(obj, job_of(obj), SITE)]
    for pod in pods:
        assert {"key": "gpu", "operator": "Exists"} in pod["spec"]["tolerations"]
        assert {"name": "registry"} in pod["spec"]["imagePullSecrets"]
    assert {"name": "mine"} in pods[0]["spec"]["imagePullSecrets"]


def test_default_limits_satisfy_a_quota_where_the_template_has_none() -> None:
    obj = training_job(sync=SYNC)
    helper = {"name": "helper", "image": "x", "resources": {"requests": {"memory": "8Gi"}}}
    pod_spec(obj, "worker")["containers"].append(helper)
    made = [chief(obj, SITE), worker(obj, site=SITE), code_pod(obj, job_of(obj), SITE)]
    for pod in made:
        containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        assert all({"cpu", "memory"} <= each["resources"]["limits"].keys() for each in containers)
    first, second = made[1]["spec"]["containers"]
    assert first["resources"]["limits"] == {"nvidia.com/gpu": "1", "cpu": "4", "memory": "4Gi"}
    assert second["resources"]["limits"] == {"cpu": "2", "memory": "8Gi"}
    assert main(made[0])["resources"]["requests"] == {"cpu": "100m", "memory": "128Mi"}


def test_only_a_launcher_may_talk_to_the_api_server() -> None:
    obj = training_job()
    assert chief(obj)["spec"]["serviceAccountName"] == "elastic-launcher"
    assert worker(obj)["spec"]["automountServiceAccountToken"] is False
    pod_spec(obj, "launcher")["serviceAccountName"] = "mine"
    assert chief(obj)["spec"]["serviceAccountName"] == "mine"


# --- old images ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("#!/bin/sh\n[ $1 = -V ] && echo Python 3.7.9 || exit 1\n", "has Python 3.7.9, and"),
        ("", "has no python3, and"),
    ],
)
def test_an_image_without_a_recent_python_says_so_in_its_last_line(
    python: str, said: str, tmp_path: Path
) -> None:
    if python:
        (tmp_path / "python3").write_text(python)
        (tmp_path / "python3").chmod(0o755)
    shell = shutil.which("sh") or "/bin/sh"
    for pod in (chief(training_job(), SITE), worker(training_job(), site=SITE)):
        words = [shell, *main(pod)["command"][1:]]
        done = subprocess.run(words, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
        assert done.returncode == 78
        ended = {"terminated": {"exitCode": 78, "message": done.stderr}}
        pod["metadata"]["uid"] = "u"
        pod["status"] = {"phase": "Failed", "containerStatuses": [{"name": "et", "state": ended}]}
        seen = sighting(read_pod(pod))
        assert seen.unusable
        assert said in seen.reason and "Midflight needs Python 3.10" in seen.reason


@pytest.mark.parametrize("version", ["3.6", "3.9", "3.10"])
def test_a_python_is_refused_if_midflight_cannot_run_on_it_and_only_then(
    version: str, tmp_path: Path
) -> None:
    python = find_python(version) or pytest.skip(f"there is no Python {version} here")
    provide(tmp_path)
    words = main(worker(training_job(), site=SITE))["command"]
    script = words[2].replace(names.RUNTIME_DIR, str(tmp_path))
    done = subprocess.run(
        ["sh", "-c", script, *words[3:7], "--help"],
        env={"PATH": f"{python.parent}:{os.defpath}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if version == "3.10":
        assert (done.returncode, done.stderr) == (0, "")
        assert "--join-timeout" in done.stdout
    else:
        assert done.returncode == 78
        assert f"has Python {version}." in done.stderr and done.stderr.count("\n") == 1


def test_a_recent_python_runs_the_command_and_a_torchrun_of_the_image_is_not_asked() -> None:
    words = main(chief(training_job(PLAIN), PodDefaults("midflight:1")))["command"]
    found = subprocess.run([*words[:3], "echo", "runs"], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "runs\n")
    obj = pytorch_job(TORCHRUN, elasticPolicy=ELASTIC)
    assert "3, 10), " not in main(chief(obj, PodDefaults("midflight:1")))["command"][2]
