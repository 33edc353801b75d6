"""What is kept of the logs of pods that failed: which, how much, and before they are deleted."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from midflight.controller.commands import StopInstance
from midflight.controller.state import Job
from midflight.errors import Exists, MidflightError, NotFound
from midflight.kubernetes.operator.executor import Executor
from midflight.kubernetes.operator.log_keeper import failed_pods
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.resources.kept_logs import LONGEST, MOST, by_instance, change, end_of, key
from midflight.kubernetes.resources.pod import Pod
from tests.kubernetes.job_objects import Json, chief_of, job_of, pytorch_job, worker_of
from tests.kubernetes.jobs import NOW, pod, running


def stop(job: Job, name: str) -> StopInstance:
    return StopInstance(job.key, name, 1, 0.0)


def failed(name: str, **more: Any) -> Pod:
    return pod(name, "Failed", code=1, failed_container="et", **more)


def test_of_an_instance_the_last_log_is_kept_and_of_a_job_the_last_ones():
    data = {key(pod(f"j-worker-{n}"), NOW + n): str(n) for n in range(MOST)}
    again = {key(pod("j-worker-3", attempt=2), NOW + 50): "again"}
    changes = change(data, again)
    assert changes == {key(pod("j-worker-3"), NOW + 3): None, **again}
    fresh = {key(pod("j-worker-9"), NOW + 60): "fresh"}
    assert change(data, fresh) == {key(pod("j-worker-0"), NOW): None, **fresh}
    assert change({}, fresh) == fresh
    few = dict([*data.items()][:-1])
    assert change(few, fresh) == fresh
    assert by_instance({**data, **again})["j-worker-3"] == "again"


def test_the_end_of_a_long_log_begins_with_a_whole_line():
    lines = "".join(f"line {number}\n" for number in range(20_000))
    kept = end_of(lines)
    assert LONGEST - 20 < len(kept) <= LONGEST
    assert kept.startswith("line 1") and kept.endswith("line 19999\n")
    assert end_of("é" * LONGEST) == "é" * (LONGEST // 2)
    assert end_of("short") == "short"


def test_logs_of_pods_that_failed_by_themselves_are_kept_the_chiefs_first():
    job = running()
    pods = {name: failed(name) for name in ("demo-worker-0", "demo-launcher")}
    orders = [stop(job, name) for name in pods]
    assert [each.name for each in failed_pods(job, orders, pods)] == [
        "demo-launcher",
        "demo-worker-0",
    ]
    assert failed_pods(replace(job, deleting=True), orders, pods) == []
    for other in (
        failed("demo-worker-0", taken=True),
        failed("demo-worker-0", told=True),
        failed("demo-worker-0", ends_at=NOW),
        pod("demo-worker-0", "Succeeded", code=0),
        pod("demo-worker-0"),
    ):
        assert failed_pods(job, orders[:1], {"demo-worker-0": other}) == []


class ApiServer:
    """Notes what it is asked for; has a ConfigMap with former logs, or none."""

    def __init__(self, there: Json | None = None, log: str | Exception = "a\nb\n") -> None:
        self.there, self.text = there, log
        self.asked: list[str] = []
        self.data: Json = {}

    async def log(self, namespace: str, pod: str, container: str, lines: int) -> str:
        self.asked.append(f"log of {container} in {pod}")
        if isinstance(self.text, Exception):
            raise self.text
        return self.text

    async def create(self, obj: Json) -> Json:
        if self.there is not None:
            raise Exists(obj["metadata"]["name"])
        self.asked.append(f"create {obj['metadata']['name']}")
        self.data = obj["data"]
        return obj

    async def get(self, kind: str, namespace: str, name: str, api: str = "") -> Json:
        if kind != "ConfigMap":
            raise NotFound(name)
        assert self.there is not None
        return self.there

    async def patch(
        self, kind: str, namespace: str, name: str, change: Json, api: str = ""
    ) -> None:
        self.asked.append(f"patch {name}")
        self.data = change["data"]

    async def delete(self, kind: str, namespace: str, name: str, grace: int | None) -> None:
        self.asked.append(f"delete {name}")


def replaced(server: ApiServer) -> list[str]:
    """What is asked for when a worker of a job of fixed size that failed is started again."""
    obj = pytorch_job()
    job = job_of(obj)
    job = replace(job, instances={i.name: i for i in (chief_of(job), worker_of(job))})
    pods = {"fixed-worker-0": failed("fixed-worker-0")}
    untyped: Any = server
    executor = Executor(untyped, PodDefaults(key=b"k"), lambda _: None, lambda o: o, time.time)
    executor._least = 0
    asyncio.run(executor.carry_out(obj, job, [stop(job, "fixed-worker-0")], lambda: pods))
    return server.asked


def test_the_log_of_a_failed_pod_is_read_before_the_pod_is_deleted():
    server = ApiServer()
    read, kept, deleted = replaced(server)
    assert read == "log of et in fixed-worker-0"
    assert (kept, deleted) == ("create fixed-logs", "delete fixed-worker-0")
    assert by_instance(server.data) == {"fixed-worker-0": "a\nb\n"}


def test_it_is_kept_beside_those_of_other_instances():
    owners = [{"uid": pytorch_job()["metadata"]["uid"]}]
    former = {"20260101T000000Z.fixed-worker-0.1": "former"}
    server = ApiServer({"metadata": {"ownerReferences": owners}, "data": former})
    assert "patch fixed-logs" in replaced(server)
    assert server.data["20260101T000000Z.fixed-worker-0.1"] is None


@pytest.mark.parametrize(
    "server",
    [
        ApiServer(log=MidflightError("the kubelet does not answer")),
        ApiServer(log=NotFound("no such pod")),
        ApiServer({"metadata": {}, "data": {}}),
    ],
    ids=["no kubelet", "no pod", "another's ConfigMap"],
)
def test_a_log_that_cannot_be_kept_keeps_nobody_from_being_started_again(server: ApiServer):
    assert replaced(server)[-1] == "delete fixed-worker-0"
    assert server.data == {}
