"""What the API shows."""

from midflight.controller import spec as specs
from midflight.controller import views
from midflight.controller.commands import Record
from midflight.controller.spec import Kind, Spec, Sync
from midflight.protocol.views import JobView
from tests.controller.scenario import Scenario, node


def shown(s: Scenario, name: str = "job") -> JobView:
    return views.view(s.cluster, s.job(name), s.now, "/jobs/job")


def test_a_job_is_shown_with_its_instances() -> None:
    s = Scenario()
    s.etjob(workers=2, gpus=2)
    s.now += 90
    job = shown(s)
    assert (job["type"], job["trainer"], job["status"]) == ("etjob", "ETJOB", "RUNNING")
    assert job["duration"] == 90
    assert (job["requestGPUs"], job["allocatedGPUs"]) == (4, 4)
    assert (job["workers"], job["minWorkers"], job["maxWorkers"]) == (2, 1, 9)
    assert job["node"] == "127.0.1.1"
    assert job["createTime"] == "1970-01-01T00:16:40.000Z"
    assert job["endTime"] is None
    assert [i["name"] for i in job["instances"]] == ["job-launcher", "job-worker-0", "job-worker-1"]
    assert [i["chief"] for i in job["instances"]] == [True, False, False]
    assert job["instances"][1]["devices"] == [0, 1]


def test_a_job_that_waits_has_no_node() -> None:
    s = Scenario(node("node-1", gpus=0))
    s.etjob()
    job = shown(s)
    assert (job["node"], job["instances"][0]["node"]) == ("N/A", "N/A")
    assert job["allocatedGPUs"] == 0
    assert job["instances"][1]["reason"] == "no node has 1 GPU; the largest has 0"


def test_workers_are_listed_by_number() -> None:
    s = Scenario()
    s.etjob(workers=12, max_workers=12)
    assert [i["name"] for i in shown(s)["instances"]][-3:] == [
        "job-worker-9",
        "job-worker-10",
        "job-worker-11",
    ]


def test_secrets_are_never_shown() -> None:
    s = Scenario()
    s.etjob(secrets={"GIT_SYNC_PASSWORD": "hunter2"})
    assert "hunter2" not in str(shown(s))


def test_an_operation_is_shown_with_its_sizes() -> None:
    s = Scenario()
    s.etjob(workers=2)
    s.scale("scaleout", 1)
    operation = shown(s)["operations"][0]
    assert (operation["from"], operation["to"], operation["progress"]) == (2, 3, "succeeded")
    assert operation["workers"] == ["job-worker-2"]
    assert operation["changes"] >= 2
    assert operation["endTime"] is not None


def test_a_node_is_shown_with_what_is_on_it() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=1, gpus=2)
    s.node("cordon", "node-2")
    found = [views.node_view(s.cluster, n) for n in s.cluster.nodes.values()]
    assert sum(n["allocatedGPUs"] for n in found) == 2
    names = sorted(name for n in found for name in n["instances"])
    assert names == ["default/job/job-launcher", "default/job/job-worker-0"]
    assert found[1]["status"] == "Ready,SchedulingDisabled"


def test_an_event_is_shown_with_its_job_and_a_nodes_event_without() -> None:
    record = Record("default/job", "job/job", "Normal", "Submitted", "hello")
    event = views.event_view(record, 0.0)
    assert (event["namespace"], event["job"], event["time"]) == (
        "default",
        "job",
        "1970-01-01T00:00:00.000Z",
    )
    event = views.event_view(Record("", "node/node-1", "Normal", "Cordoned", ""), 0.0)
    assert (event["namespace"], event["job"]) == ("", "")


def test_the_exit_code_of_an_instance_that_ended_is_shown() -> None:
    s = Scenario()
    s.etjob()
    s.end("launcher", 4)
    assert shown(s)["instances"][0]["exitCode"] == 4
    assert shown(s)["instances"][1]["status"] == "Completed"


def test_a_password_in_the_address_of_the_code_is_hidden_too() -> None:
    address = "https://me:secret@example.org/team/repo.git"
    spec = Spec(Kind.PYTORCHJOB, "job", "true", sync=Sync("git", address))
    found = specs.shown(spec).sync
    assert found is not None and found.source == "https://******@example.org/team/repo.git"
    plain = Spec(Kind.PYTORCHJOB, "job", "true", sync=Sync("git", "git@example.org:team/repo.git"))
    assert specs.shown(plain) == plain
