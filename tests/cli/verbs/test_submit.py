"""`submit` as a program: what it prints, what it sends, and what it waits for."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli import canned
from tests.cli.fake_server import Answer, FakeServer
from tests.cli.program import Arena

pytestmark = pytest.mark.slow
ET = ("submit", "etjob", "--name=demo")


def test_an_etjob_is_answered_as_in_the_guide(fake: FakeServer, arena: Arena) -> None:
    done = arena(*ET, "--workers=3", "python train.py")
    assert done.code == 0, done.err
    assert done.out == "trainingjob.kai.alibabacloud.com/demo created\n"
    assert done.err == (
        "INFO[0000] The Job demo has been submitted successfully\n"
        "INFO[0000] You can run `arena get demo --type etjob` to check the job status\n"
    )
    (request,) = fake.asked("POST", "/jobs")
    assert (request.body["kind"], request.body["workers"]) == ("etjob", 3)


@pytest.mark.parametrize("kind", ["pytorchjob", "pytorch"])
def test_a_pytorchjob_too_under_the_other_name_of_the_program(
    kind: str, fake: FakeServer, arena: Arena
) -> None:
    done = arena("submit", kind, "-n", "lab", "--name=demo", "python train.py", name="midflight")
    assert done.out == "pytorchjob.kubeflow.org/demo created\n"
    assert "`midflight get demo --type pytorchjob -n lab` to check" in done.err
    assert fake.asked("POST", "/jobs")[0].body["namespace"] == "lab"


def test_what_has_no_meaning_here_is_noted_in_one_line(fake: FakeServer, arena: Arena) -> None:
    noted = arena(*ET, "--image=x", "--toleration=all", "--gang", "sh").err.split("\n")
    assert noted[0] == (
        "INFO[0000] --image, --toleration and --gang are kept for a cluster; "
        "on this machine there are no containers"
    )
    assert "--image is kept for a cluster" in arena(*ET, "--image=x", "sh").err
    assert fake.asked("POST", "/jobs")[0].body["container"]["tolerations"] == ["all"]


def test_cpu_slots_that_stand_in_for_gpus_are_noted(fake: FakeServer, arena: Arena) -> None:
    note = "this machine has no GPUs: CPU slots stand in for --gpus"
    assert note in arena(*ET, "--gpus=1", "sh").err
    assert note not in arena(*ET, "sh").err
    fake.nodes = [canned.node("node-1", virtual=False)]
    assert note not in arena(*ET, "--gpus=1", "sh").err


def test_a_deprecated_flag_is_taken_and_named(arena: Arena, tmp_path: Path) -> None:
    done = arena(*ET, f"--workingDir={tmp_path}", "sh")
    assert done.err.startswith(
        "Flag --workingDir has been deprecated, please use --working-dir instead\n"
    )


def test_without_a_command_there_is_help_and_an_error(fake: FakeServer, arena: Arena) -> None:
    done = arena(*ET)
    assert done.code == 2
    assert done.out.startswith("usage: arena submit etjob --name NAME [flags] COMMAND")
    assert done.err == "midflight: error: not found command args\n"
    assert not fake.requests


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["submit"], "wanted a kind of job, etjob (et) or pytorchjob (pytorch), or -f JOB.YAML"),
        (["submit", "tfjob", "--name=x", "sh"],
         "the kinds of jobs there are: etjob (et) and pytorchjob (pytorch); got 'tfjob'"),
        (["submit", "et", "sh"], 'required flag(s) "name" not set'),
        (["submit", "--name=x", "sh"], "here or as `kind:` in the file; got none"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(
    argv: list[str], complaint: str, fake: FakeServer, arena: Arena
) -> None:
    done = arena(*argv)
    assert done.code == 2
    assert complaint in done.err
    assert done.err.count("\n") == 1
    assert not fake.requests


def test_a_spec_that_makes_no_sense_is_not_even_sent(fake: FakeServer, arena: Arena) -> None:
    done = arena(*ET, "--workers=3", "--max-workers=2", "sh")
    assert done.code == 2
    assert done.err.startswith("midflight: error: ")
    assert not fake.requests


def test_what_the_server_objects_to_is_passed_on(fake: FakeServer, arena: Arena) -> None:
    text = "the job demo is already exist, please delete it first. use 'arena delete demo'"
    fake.refuse("POST", "/jobs", "conflict", text)
    done = arena(*ET, "sh")
    assert (done.code, done.out, done.err) == (1, "", f"midflight: error: {text}\n")


def test_a_dry_run_prints_a_file_that_can_be_submitted_and_no_secret(
    fake: FakeServer, arena: Arena, tmp_path: Path
) -> None:
    argv = (*ET, "--gpus=1", "-e", "A=1", "--image=x", f"--working-dir={tmp_path}")
    done = arena(*argv, "--dry-run", "python train.py", PATH="/bin")
    assert not fake.requests
    found = yaml.safe_load(done.out)
    assert found["environment"].pop("PATH") == "/bin"
    del found["environment"]
    assert found == {
        "kind": "etjob",
        "name": "demo",
        "command": "python train.py",
        "workers": 1,
        "min_workers": 1,
        "max_workers": 1000,
        "gpus": 1,
        "working_dir": str(tmp_path),
        "env": {"A": "1"},
        "container": {"image": "x"},
    }
    path = tmp_path / "job.yaml"
    path.write_text(done.out)
    assert arena("submit", "-f", str(path), "--gpus=0").code == 0
    assert fake.asked("POST", "/jobs")[0].body["gpus"] == 0
    secret = arena(*argv, "-e", "GIT_SYNC_PASSWORD=hunter2", "--dry-run", "sh")
    assert "hunter2" not in secret.out + secret.err
    assert yaml.safe_load(secret.out)["secrets"] == {"GIT_SYNC_PASSWORD": "******"}


def test_a_file_of_another_kind_is_refused(arena: Arena, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("kind: pytorchjob\nname: demo\ncommand: sh\n")
    assert (
        "describes a pytorchjob, but etjob was asked for"
        in arena("submit", "etjob", "-f", str(path)).err
    )
    path.write_text("kind: pytorchjob\nname: demo\ncommand: sh\nworkers: many\n")
    done = arena("submit", "-f", str(path))
    assert (done.code, done.out) == (2, "")
    assert "this is not a job: workers: wanted int, got 'many'" in done.err


def test_the_result_can_be_had_for_machines(arena: Arena) -> None:
    assert arena(*ET, "-o", "name", "sh").out == "demo\n"
    assert json.loads(arena(*ET, "-o", "json", "sh").out)["name"] == "demo"


@pytest.mark.parametrize(("status", "code"), [("SUCCEEDED", 0), ("FAILED", 1)])
def test_waiting_tells_by_the_exit_code_how_the_job_ended(
    status: str, code: int, fake: FakeServer, arena: Arena
) -> None:
    ended = canned.job(status=status, reason="exit code 3" if code else "")
    fake.answers["GET", "/jobs/default/demo/wait"] = Answer(200, json.dumps(ended).encode())
    done = arena(*ET, "--wait", "--timeout=5s", "sh")
    assert done.code == code
    assert done.err.endswith(
        f"INFO[0000] The Job demo has ended, {status}{': exit code 3' if code else ''}\n"
    )


def test_common_flags_may_stand_before_the_verb_and_before_the_kind(
    fake: FakeServer, arena: Arena
) -> None:
    argv = ("submit", "-n", "lab", "pytorch", "--name=demo", "sh")
    assert arena("--loglevel", "info", *argv).err.count("INFO[0000]") == 2
    assert arena("--loglevel=error", *argv).err == ""
    assert arena("-n", "lab", "submit", "et", "--name=demo", "sh").code == 0
    assert {request.body["namespace"] for request in fake.asked("POST", "/jobs")} == {"lab"}


def test_help_names_the_kinds_and_the_flags(arena: Arena) -> None:
    said = arena("submit", "--help")
    assert said.code == 0
    assert "etjob" in said.out and "see `arena submit pytorchjob" in said.out
    said = arena("submit", "et", "--help")
    assert said.code == 0
    assert "where the command runs (default: this folder; with --sync-mode, your home)" in " ".join(
        said.out.split()
    )


def test_messages_are_for_programs_where_no_terminal_is(arena: Arena) -> None:
    first = arena(*ET, "sh", MIDFLIGHT_LOG_FORMAT="").err.split("\n")[0]
    stamp, rest = first.split(" ", 1)
    assert stamp.startswith('time="20')
    assert rest == 'level=info msg="The Job demo has been submitted successfully"'


def test_less_is_said_at_a_higher_level_and_more_at_debug(arena: Arena) -> None:
    assert arena(*ET, "--loglevel=warn", "sh").err == ""
    assert (
        "DEBU[0000] --arena-namespace is ignored"
        in arena(*ET, "--loglevel=debug", "--arena-namespace=arena-system", "sh").err
    )
