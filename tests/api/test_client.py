"""`midflight.Client`: what each call asks of the server, what it returns, and how it fails."""

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from midflight.api.client import Client
from midflight.errors import JobFailed, NotFound, UsageError
from tests.cli import canned
from tests.cli.fake_server import FakeServer

DEMO = "/jobs/default/demo"
AT = "2026-03-26T10:00:00Z"


def test_the_name_is_loaded_when_it_is_used_and_without_torch() -> None:
    code = (
        "import midflight, sys\n"
        "assert 'midflight.api' not in sys.modules\n"
        "assert midflight.Client.__module__ == 'midflight.api.client'\n"
        "assert 'Client' in dir(midflight) and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- submit ---------------------------------------------------------------------------------


def sent(fake: FakeServer) -> dict[str, Any]:
    (request,) = fake.asked("POST", "/jobs")
    body: dict[str, Any] = request.body
    return body


def test_a_job_is_submitted_with_the_defaults_of_the_command_line(
    client: Client, fake: FakeServer
) -> None:
    job = client.submit("demo", "python train.py")
    assert (job.name, job.kind, job.namespace) == ("demo", "etjob", "default")
    spec = sent(fake)
    assert (spec["kind"], spec["command"], spec["workers"]) == ("etjob", "python train.py", 1)
    assert (spec["min_workers"], spec["max_workers"], spec["shell"]) == (1, 1000, "sh")
    assert "PATH" in spec["environment"]


def test_what_a_call_says_is_in_the_spec(client: Client, fake: FakeServer) -> None:
    client.submit(
        "demo",
        ["python", "my train.py", "$HOME"],
        workers=2,
        max_workers=4,
        cpu=0.5,
        env={"LEVEL": "debug"},
        max_wait_time="10m",
        retry=3,
    )
    spec = sent(fake)
    assert spec["command"] == "python 'my train.py' '$HOME'"
    assert (spec["workers"], spec["min_workers"], spec["max_workers"]) == (2, 1, 4)
    assert (spec["cpu"], spec["env"], spec["max_wait_time"]) == ("0.5", {"LEVEL": "debug"}, 600.0)
    assert (spec["restart_policy"], spec["backoff_limit"]) == ("OnFailure", 3)


def test_another_namespace_is_that_of_all_calls(fake: FakeServer, client: Client) -> None:
    fake.jobs = [canned.job("demo", namespace="lab")]
    lab = Client(namespace="lab")
    lab.submit("demo", "sh")
    assert sent(fake)["namespace"] == "lab"
    assert lab.get("demo").namespace == "lab"
    with pytest.raises(NotFound, match="no job is named 'demo' in namespace default"):
        client.get("demo")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"worker": 2}, r"submit\(\): unknown argument worker \(did you mean workers\?\)"),
        ({"workers": 3, "max_workers": 2}, "workers 3 is not between min_workers 1 and max_work"),
        ({"workers": "many"}, "workers: wanted int, got 'many'"),
        ({"worker_restart_policy": "Often"}, "^worker_restart_policy is invalid: wanted "),
        ({"max_wait_time": "soon"}, "wanted a length of time such as 90s"),
        ({"working_dir": "/no/such"}, "^working_dir /no/such: there is no such folder"),
        ({"sync": {"mode": "git"}}, "sync.source should be set when"),
        ({"kind": "tfjob"}, "tfjob"),
        ({"env": "A=1"}, r"submit\(\): env: wanted names with values, got 'A=1'"),
        ({"running_timeout": 5.0}, "running_timeout is for jobs of type pytorchjob, and"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_said_of_arguments(
    client: Client, fake: FakeServer, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as error:
        client.submit("demo", "sh", **arguments)
    assert "--" not in str(error.value)
    assert fake.asked("POST", "/jobs") == []


def test_a_command_that_is_empty_is_refused(client: Client) -> None:
    commands: list[str | list[str]] = ["", " ", []]
    for command in commands:
        with pytest.raises(UsageError, match="wanted a command, got"):
            client.submit("demo", command)


# --- looking --------------------------------------------------------------------------------


def test_a_list_is_newest_first_and_its_values_are_python_s(
    client: Client, fake: FakeServer
) -> None:
    over = {"status": "FAILED", "reason": "exit code 1", "startTime": AT, "endTime": AT}
    fake.jobs = [canned.job("old", createTime=AT, **over), canned.job("new")]
    new, old = client.list()
    assert (new.name, new.is_over, new.ended) == ("new", False, None)
    assert (old.is_over, old.succeeded, old.reason) == (True, False, "exit code 1")
    assert old.created == datetime(2026, 3, 26, 10, tzinfo=UTC) == old.ended
    assert (new.workers, new.min_workers, new.max_workers) == (2, 1, 9)
    client.list("et", all_namespaces=True)
    assert fake.requests[-1].query == {"namespace": "*", "type": "etjob"}


def test_a_job_is_shown_with_its_instances_and_operations(client: Client, fake: FakeServer) -> None:
    fake.jobs = [canned.job(operations=[canned.operation()])]
    job = client.get("demo")
    launcher, worker, _ = job.instances
    assert (launcher.name, launcher.is_chief, launcher.gpus) == ("demo-launcher", True, 0)
    assert (worker.status, worker.gpus, worker.exit_code) == ("Running", 1, None)
    (operation,) = job.operations
    assert (operation.before, operation.after, operation.succeeded) == (3, 4, False)


def test_events_are_those_of_a_job_or_of_the_namespace(client: Client, fake: FakeServer) -> None:
    fake.jobs, fake.events = [canned.job()], [canned.event()]
    assert [(each.source, each.reason) for each in client.events("demo")] == [
        ("instance/demo-worker-0", "Started")
    ]
    assert client.events()[0].message == "runs as process 4711"


def test_a_log_comes_in_lines(client: Client, fake: FakeServer) -> None:
    fake.jobs, fake.log = [canned.job()], "épique\n\nlast".encode()
    asked = client.logs("demo", instance="demo-worker-1", tail=3, follow=True, timestamps=True)
    assert list(asked) == ["épique", "", "last"]
    assert fake.asked("GET", f"{DEMO}/logs")[0].query == {
        "instance": "demo-worker-1",
        "tail": "3",
        "follow": "true",
        "timestamps": "true",
    }
    with pytest.raises(UsageError, match=r"logs\(\): unknown argument tails; wanted instance, all"):
        client.logs("demo", tails=3)  # type: ignore[call-arg]


def test_waiting_ends_with_the_job_and_raises_if_it_has_failed(
    client: Client, fake: FakeServer
) -> None:
    fake.jobs = [canned.job(status="SUCCEEDED")]
    assert client.wait("demo", timeout="5m").succeeded
    asked = fake.asked("GET", f"{DEMO}/wait")[0].query
    assert (asked["until"], float(asked["timeout"])) == ("finished", 20)
    fake.jobs = [canned.job(status="FAILED", reason="rank 1: ValueError")]
    with pytest.raises(JobFailed, match="demo has failed: rank 1: ValueError"):
        client.wait("demo")


# --- changing -------------------------------------------------------------------------------


def ends(fake: FakeServer, progress: str, message: str) -> None:
    fake.jobs = [canned.job()]
    fake.operations = [
        canned.operation(),
        canned.operation(progress="placing", changes=2),
        canned.operation(progress=progress, message=message),
    ]


@pytest.mark.parametrize(
    ("arguments", "wish"),
    [
        ({"to": 4}, {"to": 4}),
        ({"add": 2}, {"kind": "scaleout", "count": 2, "names": []}),
        ({"remove": 1}, {"kind": "scalein", "count": 1, "names": []}),
        ({"remove": "demo-worker-1"}, {"kind": "scalein", "count": 1, "names": ["demo-worker-1"]}),
        ({"remove": ["a", "b"]}, {"kind": "scalein", "count": 2, "names": ["a", "b"]}),
    ],
    ids=str,
)
def test_a_size_is_asked_for_and_the_outcome_waited_for(
    client: Client, fake: FakeServer, arguments: dict[str, Any], wish: dict[str, Any]
) -> None:
    ends(fake, "succeeded", "trains with 4 now")
    done = client.scale("demo", timeout="2m", partial=True, **arguments)
    assert (done.succeeded, done.message) == (True, "trains with 4 now")
    (request,) = fake.asked("POST", f"{DEMO}/scale")
    assert request.body == {**wish, "timeout": 120.0, "partial": True}


def test_a_change_that_was_undone_raises_with_the_reason(client: Client, fake: FakeServer) -> None:
    ends(fake, "failed", "taken back: no room for 1 worker")
    with pytest.raises(JobFailed, match="taken back: no room for 1 worker"):
        client.scale("demo", add=1)


def test_an_outcome_that_nobody_waits_for_is_not_asked_for(
    client: Client, fake: FakeServer
) -> None:
    ends(fake, "failed", "")
    assert client.scale("demo", to=4, wait=False).progress == "asked"
    assert not [each for each in fake.requests if "/operations/" in each.path]


def test_a_server_that_goes_away_while_somebody_waits_is_asked_again(
    client: Client, fake: FakeServer
) -> None:
    ends(fake, "succeeded", "done")
    fake.hiccups = 1
    assert client.scale("demo", to=4).succeeded


@pytest.mark.parametrize("arguments", [{}, {"to": 3, "add": 1}, {"add": 1, "remove": ["a"]}])
def test_one_size_is_wanted_and_no_more(client: Client, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="wanted one of to=N, add=N and remove=N"):
        client.scale("demo", **arguments)
    with pytest.raises(UsageError, match="wanted a number of workers, 1 or more, got -1"):
        client.scale("demo", add=-1)


def test_what_the_server_refuses_is_said_of_arguments(client: Client, fake: FakeServer) -> None:
    ends(fake, "succeeded", "")
    fake.refuse("POST", f"{DEMO}/scale", "refused", "--count is 1, but 2 would be under --min-np 3")
    with pytest.raises(Exception, match=r"^add or remove is 1, but 2 would be under min_np 3"):
        client.scale("demo", remove=1)


def test_a_job_is_deleted_and_one_that_is_not_there_is_an_error(
    client: Client, fake: FakeServer
) -> None:
    with pytest.raises(NotFound, match="no job is named 'demo' in namespace default; see list"):
        client.delete("demo")
    fake.jobs = [canned.job()]
    client.delete("demo", timeout=5)
    assert fake.asked("GET", f"{DEMO}/wait")[0].query["until"] == "gone"
    assert len(fake.asked("DELETE", DEMO)) == 1
