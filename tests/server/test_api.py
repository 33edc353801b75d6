"""The HTTP API of a real server, on its unix socket."""

import json
import os
import stat
import threading
import time
from typing import Any

import pytest

from midflight.client import Client
from midflight.errors import Exists, NotFound, Refused, TimedOut, Unreachable, UsageError
from midflight.protocol.audit import AUDIT
from midflight.server.application import ENTRIES, PREFIX
from midflight.server.folder import SOCKET
from tests.run.site import eventually
from tests.server.site import Site, ask, spec

pytestmark = pytest.mark.slow


@pytest.fixture
def client(site: Site) -> Client:
    return site.serve()


def running(client: Client, name: str = "bert", **more: Any) -> None:
    client.submit(spec(name, **more))
    client.wait("default", name, "running", 10)


def test_a_job_is_submitted_listed_shown_and_deleted(client: Client, site: Site) -> None:
    made = client.submit(spec())
    assert (made["name"], made["namespace"], made["type"]) == ("bert", "default", "etjob")
    job = client.wait("default", "bert", "running", 10)
    assert job is not None and job["status"] == "RUNNING"
    assert {i["name"] for i in job["instances"]} == {
        "bert-launcher",
        "bert-worker-0",
        "bert-worker-1",
    }
    assert [j["uid"] for j in client.jobs("default")] == [made["uid"]]
    assert [j["uid"] for j in client.jobs("*", "etjob")] == [made["uid"]]
    assert client.jobs("*", "pytorchjob") == []
    assert client.jobs("other") == []
    assert client.status()["jobs"] == {"RUNNING": 1}
    client.delete("default", "bert")
    client.wait("default", "bert", "gone", 10)
    assert client.jobs("*") == []
    assert client.events("*") == []
    assert list((site.home / "fake").iterdir()) == []
    with pytest.raises(NotFound):
        client.job("default", "bert")


def test_events_are_shown_by_job_and_by_namespace(client: Client) -> None:
    running(client)
    client.submit(spec("gpt", namespace="other"))
    of_bert = client.events("default", "bert")
    assert {(e["namespace"], e["job"]) for e in of_bert} == {("default", "bert")}
    assert of_bert[0]["reason"] == "Submitted"
    assert "this is only a file" in {e["message"] for e in of_bert}
    assert client.events("default") == of_bert
    assert {e["job"] for e in client.events("other")} == {"gpt"}
    assert {e["job"] for e in client.events("*")} == {"bert", "gpt"}


def test_secrets_are_in_no_answer(client: Client, site: Site) -> None:
    client.submit(spec(secrets={"password": "hunter2"}))
    for path in ("/jobs/default/bert", "/jobs", "/jobs/default/bert/events"):
        assert "hunter2" not in json.dumps(ask(site.home, "GET", path))
    assert "hunter2" not in site.log


def test_a_long_poll_ends_when_the_job_changes(client: Client) -> None:
    running(client)
    answers: list[Any] = []
    poll = threading.Thread(
        target=lambda: answers.append(client.wait("default", "bert", "gone", 30))
    )
    poll.start()
    client.delete("default", "bert")
    poll.join(10)
    assert answers == [None]


def test_a_long_poll_that_is_over_says_so(client: Client) -> None:
    running(client)
    with pytest.raises(TimedOut, match="was not finished within"):
        client.wait("default", "bert", "finished", 0.1)


def test_a_job_that_is_deleted_meanwhile_ends_the_wait(client: Client) -> None:
    running(client)
    found: list[Exception] = []

    def wait() -> None:
        try:
            client.wait("default", "bert", "finished", 30)
        except NotFound as error:
            found.append(error)

    poll = threading.Thread(target=wait)
    poll.start()
    time.sleep(0.1)  # the poll is under way, or comes too late: both end in the same way
    client.delete("default", "bert")
    poll.join(10)
    assert len(found) == 1


def test_a_scale_operation_is_followed_to_its_end(client: Client) -> None:
    running(client)
    operation = client.scale("default", "bert", {"kind": "scaleout", "count": 1, "timeout": 20})
    while operation["endTime"] is None:
        operation = client.operation(
            "default", "bert", operation["id"], operation["changes"], timeout=10
        )
    assert (operation["progress"], operation["from"], operation["to"]) == ("succeeded", 2, 3)
    assert client.job("default", "bert")["workers"] == 3
    operation = client.scale("default", "bert", {"to": 1, "timeout": 20})
    assert (operation["kind"], operation["count"]) == ("scalein", 2)


def test_a_scale_operation_out_of_bounds_is_refused(client: Client) -> None:
    running(client)
    with pytest.raises(Refused, match="max-workers"):
        client.scale("default", "bert", {"kind": "scaleout", "count": 9})
    with pytest.raises(NotFound):
        client.scale("default", "gpt", {"to": 1})
    with pytest.raises(NotFound):
        client.operation("default", "bert", "bert-1")
    assert client.job("default", "bert")["operations"] == []


def test_nodes_are_simulated_and_acted_upon(client: Client) -> None:
    assert [node["name"] for node in client.nodes()] == ["here"]
    assert client.gpus("here")[0]["dutyCycle"] == 37
    nodes = client.simulate_nodes(3, 4)
    assert [(n["name"], n["address"], n["gpus"]) for n in nodes] == [
        (f"node-{number}", f"127.0.1.{number}", 4) for number in (1, 2, 3)
    ]
    assert client.node_action("node-2", "cordon")["status"] == "Ready,SchedulingDisabled"
    assert client.node_action("node-2", "return")["status"] == "Ready"
    with pytest.raises(NotFound, match="node-9"):
        client.node_action("node-9", "drain")
    with pytest.raises(UsageError, match="did you mean drain"):
        client.node_action("node-1", "drian")
    assert [node["name"] for node in client.simulate_nodes(0, 0)] == ["here"]


def test_simulated_nodes_are_there_after_a_restart(client: Client, site: Site) -> None:
    client.simulate_nodes(2, 4)
    site.kill()
    assert [node["name"] for node in site.serve().nodes()] == ["node-1", "node-2"]


def test_logs_are_streamed_until_the_job_is_over(client: Client) -> None:
    running(client)
    lines = client.logs("default", "bert", {"follow": "true"})
    assert next(lines) == b"a first line\n"
    client.delete("default", "bert")
    assert b"".join(lines) == b"a last line\n"
    running(client)
    with pytest.raises(NotFound, match="nobody"):
        list(client.logs("default", "bert", {"instance": "nobody"}))


def test_chaos_ends_an_instance(client: Client) -> None:
    running(client)
    client.chaos("default", "bert", "kill", "bert-worker-1")
    eventually(
        lambda: any("worker-1" in event["source"] for event in client.events("default", "bert"))
    )
    with pytest.raises(UsageError, match="did you mean kill"):
        client.chaos("default", "bert", "kil", "bert-worker-1")
    with pytest.raises(NotFound, match="did you mean bert-worker-1"):
        client.chaos("default", "bert", "kill", "bert-worker1")


def test_only_finished_jobs_are_pruned(client: Client) -> None:
    running(client)
    assert client.prune("default", 0.0) == []
    assert client.training("default", "bert") is None


def test_a_name_is_taken_once(client: Client) -> None:
    client.submit(spec())
    with pytest.raises(Exists, match="bert"):
        client.submit(spec())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({**spec(), "worker": 3}, "unknown key worker (did you mean workers?)"),
        ({**spec(), "container": {"imag": "x"}}, "container.imag (did you mean image?)"),
        ({**spec(), "workers": "many"}, "workers: wanted int"),
        ({**spec(), "workers": 9}, "max"),
        ({**spec(), "name": "Not A Name"}, "name"),
        ({"kind": "etjob"}, "is missing"),
        ([], "wanted an object"),
    ],
)
def test_a_wrong_spec_is_refused(client: Client, site: Site, body: Any, words: str) -> None:
    status, answer = ask(site.home, "POST", "/jobs", json.dumps(body).encode())
    assert (status, answer["kind"]) == (400, "usage"), answer
    assert words in answer["error"]
    assert "\n" not in answer["error"]
    assert client.jobs("*") == []


def test_wrong_requests_are_refused_in_one_line(client: Client, site: Site) -> None:
    running(client)
    job = "/jobs/default/bert"
    for method, path, body, status, words in (
        ("GET", "/nothing", None, 404, "nothing is at"),
        ("DELETE", "/nodes", None, 405, "DELETE"),
        ("POST", "/jobs", b"{", 400, "JSON"),
        ("POST", "/jobs", b" " * (1 << 20) + b"{}", 400, "at most"),
        ("POST", f"{job}/scale", b'{"counts": 1}', 400, "did you mean count?"),
        ("POST", "/nodes", b'{"count": 1000}', 400, "1 to"),
        ("GET", "/jobs?type=etjbo", None, 400, "did you mean etjob?"),
        ("GET", f"{job}/wait?until=done&timeout=1", None, 400, "until"),
        ("GET", f"{job}/wait?until=gone&timeout=soon", None, 400, "wanted float"),
        ("GET", f"{job}/wait?until=gone&timeout=nan", None, 400, "finite"),
        ("GET", f"{job}/wait?until=gone&timout=1", None, 400, "did you mean timeout?"),
        ("GET", f"{job}/logs?tail=x", None, 400, "wanted int"),
        ("GET", f"{job}/logs?follow=maybe", None, 400, "wanted bool"),
    ):
        found, answer = ask(site.home, method, path, body)
        assert found == status, (path, answer)
        assert words in answer["error"], (path, answer)
        assert "\n" not in answer["error"]


def test_the_openapi_document_lists_every_route(client: Client, site: Site) -> None:
    status, document = ask(site.home, "GET", "/openapi.json")
    assert status == 200
    assert document["openapi"] == "3.1.0"
    listed = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert listed == {(entry.method, PREFIX + entry.path) for entry in ENTRIES}
    references = set(_references(document))
    assert references
    assert references == {f"#/components/schemas/{n}" for n in document["components"]["schemas"]}


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in _references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if "$ref" in value else []
    return own + [found for item in value.values() for found in _references(item)]


def test_folder_and_socket_are_for_their_user_alone(client: Client, site: Site) -> None:
    assert stat.S_IMODE(site.home.stat().st_mode) == 0o700
    for name in (SOCKET, "journal.db", "server.lock", "server.log"):
        assert stat.S_IMODE((site.home / name).stat().st_mode) == 0o600, name


def test_an_idle_server_uses_no_time(client: Client, site: Site) -> None:
    for number in range(3):
        running(client, f"job-{number}")
    poll = threading.Thread(target=cut, args=(client,))
    poll.start()
    time.sleep(0.5)  # what followed from the start is over
    before = ticks(site.process.pid)
    time.sleep(3)
    assert ticks(site.process.pid) - before <= 1
    client.stop()
    poll.join(10)


def cut(client: Client) -> None:
    """A long poll that ends with the server."""
    with pytest.raises(Unreachable):
        client.wait("default", "job-0", "finished", 60)


def ticks(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_thousand_jobs_are_listed_and_taken_up_again(client: Client, site: Site) -> None:
    for number in range(1000):
        client.submit(spec(f"job-{number}", gpus=1, workers=1))
    begun = time.monotonic()
    assert len(client.jobs("default")) == 1000
    assert time.monotonic() - begun < 5.0
    site.kill()
    assert len(site.serve().jobs("default")) == 1000


def test_a_server_that_is_not_there_is_unreachable(site: Site) -> None:
    with pytest.raises(Unreachable, match="no server answers"):
        Client(site.home / SOCKET).status()
    assert not site.home.exists()


def test_who_asked_for_what_is_written_down_with_the_outcome(client: Client, site: Site) -> None:
    running(client)
    with pytest.raises(Refused):
        client.scale("default", "bert", {"to": 99})
    client.delete("default", "bert")
    with pytest.raises(UsageError):
        client.submit(spec("Bad Name"))
    lines = (site.home / AUDIT).read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [(each["what"], each["about"], each["outcome"]) for each in found] == [
        (f"POST {PREFIX}/jobs", "default/bert", "done"),
        (f"POST {PREFIX}/jobs/default/bert/scale", "default/bert", "refused"),
        (f"DELETE {PREFIX}/jobs/default/bert", "default/bert", "done"),
        (f"POST {PREFIX}/jobs", "default/Bad Name", "refused"),
    ]
    assert {(each["uid"], each["pid"]) for each in found} == {(os.geteuid(), os.getpid())}
    assert "exceeds the max-workers" in found[1]["reason"] and found[0]["reason"] == ""
    assert stat.S_IMODE((site.home / AUDIT).stat().st_mode) == 0o600


def test_drains_and_rehearsed_failures_are_written_down_too(client: Client, site: Site) -> None:
    running(client)
    client.chaos("default", "bert", "kill", "bert-worker-0")
    client.simulate_nodes(2, 4)
    client.node_action("node-1", "drain")
    with pytest.raises(NotFound):
        client.node_action("node-9", "cordon")
    found = [json.loads(line) for line in (site.home / AUDIT).read_text().splitlines()]
    assert [(each["what"], each["about"], each["outcome"]) for each in found[1:]] == [
        (f"POST {PREFIX}/jobs/default/bert/chaos", "default/bert", "done"),
        (f"POST {PREFIX}/nodes", "", "done"),
        (f"POST {PREFIX}/nodes/node-1/drain", "node-1", "done"),
        (f"POST {PREFIX}/nodes/node-9/cordon", "node-9", "refused"),
    ]
