"""logs, delete, prune, attach, wait, path, chaos, node and what needs no server."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from tests.cli import canned
from tests.cli.fake_server import Answer, FakeServer
from tests.cli.program import Arena

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
DEMO = "/jobs/default/demo"
MISSING = (
    "midflight: error: Not found training job none in namespace default,"
    "please use 'arena submit' to create it.\n"
)


@pytest.fixture(autouse=True)
def demo(fake: FakeServer) -> None:
    fake.jobs = [canned.job()]


# --- a job that is not there --------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ["get", "none"],
        ["get", "demo", "-T", "pytorch", "-n", "default"],
        ["path", "none"],
        ["events", "none"],
        ["attach", "none"],
        ["chaos", "kill", "none"],
        ["wait", "none"],
        ["top", "job", "none"],
    ],
    ids=" ".join,
)
def test_a_job_that_is_not_there_is_answered_in_the_words_users_know(
    argv: list[str], arena: Arena
) -> None:
    done = arena(*argv)
    assert done.code == 1
    assert done.err == MISSING.replace("job none", f"job {'demo' if 'demo' in argv else 'none'}")


def test_get_without_a_name_is_help_and_an_error(arena: Arena) -> None:
    done = arena("get")
    assert (done.code, done.err) == (2, "midflight: error: not set job name,please set it\n")
    assert done.out.startswith("usage: arena get")


@pytest.mark.parametrize("verb", ["list", "get demo", "top node", "node list", "events", "prune"])
def test_an_unknown_format_is_refused_everywhere(verb: str, arena: Arena) -> None:
    done = arena(*verb.split(), "-o", "xml")
    assert done.code == 2
    assert "unknown output format,only support:[wide|json|yaml|name" in done.err


def test_jobs_of_types_that_only_the_original_has_are_none(fake: FakeServer, arena: Arena) -> None:
    assert arena("list", "-T", "tf").out == "NAME  STATUS  TRAINER  AGE  NODE\n"
    assert arena("list", "--type=ElasticTraining").out.count("\n") == 2
    assert fake.asked("GET", "/jobs")[0].query["type"] == "etjob"
    assert "unsupport job type,arena only supports: [" in arena("list", "-T", "cat").err


# --- logs ---------------------------------------------------------------------------------------


def test_a_log_is_printed_as_it_is(fake: FakeServer, arena: Arena) -> None:
    fake.log = "[0]<stdout>:Step #340\nümlaut\n".encode()
    assert arena("logs", "demo").out == "[0]<stdout>:Step #340\nümlaut\n"
    assert fake.asked("GET", f"{DEMO}/logs")[0].query == {}


def test_what_is_wanted_of_a_log_is_what_the_server_hears(fake: FakeServer, arena: Arena) -> None:
    argv = ["-f", "--tail", "10", "--timestamps", "-i", "demo-worker-1", "-c", "ignored"]
    assert arena("logs", "demo", *argv).code == 0
    assert arena("logs", "demo", "--all", "-t5", "--since-time=1970-01-01T00:01:00Z").code == 0
    assert arena("logs", "demo", "--since=1h1m1s").code == 0
    first, second, third = (request.query for request in fake.asked("GET", f"{DEMO}/logs"))
    wanted = {"follow": "true", "tail": "10", "timestamps": "true", "instance": "demo-worker-1"}
    assert first == wanted
    assert second == {"all": "true", "tail": "5", "since": "60.0"}
    assert abs(time.time() - 3661 - float(third["since"])) < 60


def test_what_is_missing_for_a_log_is_said(fake: FakeServer, arena: Arena) -> None:
    fake.refuse("GET", f"{DEMO}/logs", "not-found", "no such instance")
    fake.refuse("GET", "/jobs/default/none/logs", "not-found", "no such job")
    assert arena("logs", "none").err == (
        "midflight: error: training job not found,"
        "please use 'arena list' to make sure job is existed\n"
    )
    assert arena("logs", "demo", "-i", "demo-worker-9").err == (
        "midflight: error: invalid instance name demo-worker-9 in job demo,"
        "please use 'arena get demo' to make sure instance name\n"
    )
    assert "error: no such instance" in arena("logs", "demo").err


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--since=soon"], "failed to parse since seconds,invalid format,should like: ['1h',"),
        (["--since-time=soon"], "(RFC 3339), got 'soon'"),
        (["--since=1h", "--since-time=2026-01-01T00:00:00Z"], "--since or --since-time, got both"),
        (["--all", "-i", "x"], "wanted --all or --instance, got both"),
        (["--tail=few"], "wanted a whole number, got 'few'"),
    ],
)
def test_wrong_flags_of_logs_are_refused(argv: list[str], complaint: str, arena: Arena) -> None:
    done = arena("logs", "demo", *argv)
    assert done.code == 2
    assert complaint in done.err


# --- delete, prune, wait ------------------------------------------------------------------------


def test_a_log_that_has_not_begun_is_told_with_the_reason(fake: FakeServer, arena: Arena) -> None:
    waiting = canned.instance("demo-launcher", status="Pending", startTime=None)
    fake.jobs = [canned.job(reason="no node has 9 GPUs", instances=[waiting])]
    done = arena("logs", "demo")
    assert done.code == 1
    assert done.err == (
        "midflight: error: instance demo-launcher is not running: no node has 9 GPUs\n"
    )
    done = arena("logs", "-f", "demo")
    assert "no node has 9 GPUs; its log follows once it runs" in done.err


def test_each_name_is_deleted_and_the_exit_code_is_honest(fake: FakeServer, arena: Arena) -> None:
    fake.jobs.append(canned.job("other"))
    done = arena("delete", "demo", "none", "other")
    assert done.code == 1
    assert done.err == (
        "INFO[0000] The training job 'none' does not exist,skip to delete it\n"
        "INFO[0000] The training job demo has been deleted successfully\n"
        "INFO[0000] The training job other has been deleted successfully\n"
    )
    waits = [request for request in fake.requests if request.path.endswith("/wait")]
    assert [request.query["until"] for request in waits] == ["gone", "gone"]


def test_delete_does_not_wait_if_told_so(fake: FakeServer, arena: Arena) -> None:
    assert arena("delete", "demo", "--no-wait", "-T", "et").code == 0
    assert len(fake.asked("DELETE", DEMO)) == 1
    assert not any(request.path.endswith("/wait") for request in fake.requests)
    assert arena("delete", "demo", "-T", "pytorchjob").code == 1
    assert len(fake.asked("DELETE", DEMO)) == 1


def test_a_job_that_does_not_go_in_time_is_an_error(fake: FakeServer, arena: Arena) -> None:
    fake.refuse("GET", f"{DEMO}/wait", "timeout", "demo was not gone within 1 s")
    done = arena("delete", "demo", "--timeout=1s")
    assert (done.code, done.err) == (1, "midflight: error: demo was not gone within 1 s\n")


def test_prune_deletes_what_is_old_enough(fake: FakeServer, arena: Arena) -> None:
    assert arena("prune", "--since", "10h", "-A").out == "Delete etjob old with Age 11h\n"
    assert fake.asked("POST", "/prune")[0].body == {"namespace": "*", "since": 36000.0}
    fake.answers["POST", "/prune"] = Answer(200, b"[]")
    assert arena("prune", "-s", "10h").out == "No job need to be deleted\n"
    done = arena("prune")
    assert done.code == 2
    assert "need to be cleaned by --since. Like --since 10h" in done.err


def test_waiting_ends_with_what_was_waited_for(fake: FakeServer, arena: Arena) -> None:
    done = arena("wait", "demo", "--for", "running", "--timeout", "5s")
    assert (done.code, done.out) == (0, "demo is RUNNING\n")
    fake.answers["GET", f"{DEMO}/wait"] = Answer(200, b"null")
    assert arena("wait", "demo", "--for=gone").out == "demo is gone\n"
    failed = json.dumps(canned.job(status="FAILED", reason="exit code 3")).encode()
    fake.answers["GET", f"{DEMO}/wait"] = Answer(200, failed)
    done = arena("wait", "demo")
    assert (done.code, done.err) == (1, "midflight: error: demo has failed: exit code 3\n")
    assert "invalid choice: 'lunch'" in arena("wait", "demo", "--for=lunch").err


# --- folders, failures, nodes -------------------------------------------------------------------


def test_path_prints_the_folder_of_a_job_and_of_an_instance(arena: Arena) -> None:
    assert arena("path", "demo").out == "/folder/of/demo\n"
    worker = arena("path", "demo", "demo-worker-0").out
    assert worker == "/folder/of/demo/instances/demo-worker-0\n"
    assert "invalid instance name ../x in job demo" in arena("path", "demo", "../x").err


def test_attach_runs_a_command_where_the_job_is(
    fake: FakeServer, arena: Arena, tmp_path: Path
) -> None:
    spec = {"working_dir": str(tmp_path), "env": {"A": "1"}, "environment": {"PATH": os.defpath}}
    fake.jobs = [canned.job(spec=spec)]
    script = 'pwd; echo "$MIDFLIGHT_JOB $MIDFLIGHT_INSTANCE $MIDFLIGHT_JOB_DIR $A $1"; exit 3'
    done = arena("attach", "demo", "-i", "demo-worker-1", "--", "sh", "-c", script, "--", "-x")
    assert done.code == 3, done.err
    assert done.out == f"{tmp_path}\ndemo demo-worker-1 /folder/of/demo 1 -x\n"
    assert "invalid instance name x" in arena("attach", "demo", "-i", "x", "--", "true").err
    assert "there is no such program" in arena("attach", "demo", "--", "no-such-program").err
    assert arena("attach", "demo", SHELL="/bin/true").code == 0


def test_chaos_strikes_the_newest_worker_or_the_one_that_is_named(
    fake: FakeServer, arena: Arena
) -> None:
    assert arena("chaos", "kill", "demo").out == "demo-worker-1 was killed\n"
    assert arena("chaos", "stop", "demo", "demo-launcher").out == "demo-launcher stands still\n"
    assert [request.body for request in fake.asked("POST", f"{DEMO}/chaos")] == [
        {"what": "kill", "instance": "demo-worker-1"},
        {"what": "stop", "instance": "demo-launcher"},
    ]
    fake.jobs = [canned.job(instances=[])]
    assert "no instance of demo is running" in arena("chaos", "cut", "demo").err


def test_a_node_is_changed(fake: FakeServer, arena: Arena) -> None:
    for action in ("cordon", "drain", "lose", "return"):
        assert arena("node", action, "node-1").out == "node-1 is Ready\n"
        assert len(fake.asked("POST", f"/nodes/node-1/{action}")) == 1
    assert "wanted the name of a node to drain, got none" in arena("node", "drain").err


# --- what needs no server -----------------------------------------------------------------------


def test_whoami_and_version_are_short(fake: FakeServer, arena: Arena) -> None:
    who = json.loads(arena("whoami").out)
    assert set(who) == {"Name", "Id", "IsAdminUser"}
    assert who["Id"] == str(os.getuid())
    number = arena("version", "--short").out
    assert arena("version").out == f"midflight {number}"
    assert arena("version", "-v").out.startswith(f"midflight {number}python 3.")
    assert not fake.requests
