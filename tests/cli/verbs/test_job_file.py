"""Job files: both spellings of names, and what is said of wrong ones."""

from pathlib import Path

import pytest

from midflight.cli import job_file
from midflight.errors import UsageError


def written(folder: Path, text: str) -> str:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_fields_may_be_written_in_both_ways(tmp_path: Path) -> None:
    text = """
    kind: et
    name: demo
    command: |
      python train.py
    minWorkers: 1
    max_workers: 4
    runningTimeout: 1h
    max_wait_time: 30
    env: {A: 1, B: x}
    container: {imagePullPolicy: Never, hostIPC: true, host_pid: true}
    sync: {mode: git, source: url}
    """
    assert job_file.read(written(tmp_path, text)) == {
        "kind": "etjob",
        "name": "demo",
        "command": "python train.py\n",
        "min_workers": 1,
        "max_workers": 4,
        "running_timeout": 3600.0,
        "max_wait_time": 30,
        "env": {"A": "1", "B": "x"},
        "container": {"image_pull_policy": "Never", "host_ipc": True, "host_pid": True},
        "sync": {"mode": "git", "source": "url"},
    }


def test_every_unknown_key_is_named_with_the_nearest_right_one(tmp_path: Path) -> None:
    text = "nam: demo\nworkerz: 3\nimage: x\ncontainer: {gangs: true}\nzzz: 1\n"
    with pytest.raises(UsageError) as error:
        job_file.read(written(tmp_path, text))
    assert str(error.value).endswith(
        "job.yaml: unknown keys nam (did you mean name?), workerz (did you mean workers?), "
        "image (did you mean container.image?), zzz, container.gangs (did you mean container.gang?)"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- a\n- b\n", "wanted the fields of a job, such as `name: demo`, got ['a', 'b']"),
        ("", "wanted the fields of a job"),
        ("name: [", "is not YAML"),
        ("kind: tfjob", "the kinds of jobs there are: etjob (et) and pytorchjob (pytorch)"),
        ("ttlAfterFinished: soon", "wanted a length of time"),
        ("secrets: {GIT_SYNC_PASSWORD: '******'}", "its secrets are hidden"),
        ("env: [A=1]", "env: wanted names with values, got ['A=1']"),
        ("sync: here", "sync: wanted names with values, got 'here'"),
        ("secrets: 3", "secrets: wanted names with values, got 3"),
        ("env: [A=1]\nnam: x", "unknown key nam (did you mean name?)"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as error:
        job_file.read(written(tmp_path, text))
    assert complaint in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the job file .*none.yaml: No such file"):
        job_file.read(str(tmp_path / "none.yaml"))


def test_numbers_are_texts_where_quantities_are_wanted_and_what_is_empty_is_left_out(
    tmp_path: Path,
) -> None:
    assert job_file.read(written(tmp_path, "cpu: 2\nmemory: 1e9\nenv:\ncontainer:\n")) == {
        "cpu": "2",
        "memory": "1e9",
    }
