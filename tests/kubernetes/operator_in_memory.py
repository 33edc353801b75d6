"""The operator's own code, and an API server in memory that answers at once.

All the time that passes, and all the turns of the event loop, are the operator's.
"""

import asyncio
import copy
from collections import defaultdict
from typing import Any

from midflight.backends.loop import Loop
from midflight.errors import NotFound
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import AT_ONCE, SHARE
from midflight.kubernetes.api.errors import Changed
from midflight.kubernetes.api.fair_gate import FairGate
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.executor import Executor
from midflight.kubernetes.operator.informer import Key
from midflight.kubernetes.operator.place import KubernetesPlace
from midflight.kubernetes.operator.unclaimed import UnclaimedScalers
from midflight.kubernetes.pods import PodDefaults
from tests.kubernetes.job_objects import Json, training_job


class ApiServer:
    """Takes what it is given, as many requests at a time as the operator makes of a real one.

    `created` are namespaces and names of pods.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.created: set[tuple[str, str]] = set()
        self.version = self.renewals = 0
        self._gate = FairGate(AT_ONCE, SHARE)
        self.expected = 0
        self.all = asyncio.Event()  # so many pods have been created
        self.quiet = asyncio.Event()  # its last pod has been created
        # By namespace and name, each time the operator writes a status
        self.written: defaultdict[Key, asyncio.Event] = defaultdict(asyncio.Event)
        self.released = asyncio.Event()  # something was handed to the garbage collector

    def store(self, obj: Json) -> Json:
        self.version += 1
        made = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.objects[obj["kind"], made["metadata"]["namespace"], made["metadata"]["name"]] = made
        return made

    async def _answer(self, namespace: str) -> None:
        async with self._gate.turn(namespace):
            await asyncio.sleep(0)

    async def create(self, obj: Json) -> Json:
        await self._answer(obj["metadata"]["namespace"])
        meta = {"uid": str(self.version), "creationTimestamp": "2026-01-01T00:00:00Z"}
        if obj["kind"] == "Pod":
            self.created.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))
            if {("quiet", "small-launcher"), ("quiet", "small-worker-1")} <= self.created:
                self.quiet.set()
            if len(self.created) == self.expected:
                self.all.set()
        return self.store({**obj, "metadata": {**obj["metadata"], **meta}})

    async def replace(self, obj: Json, status: bool = False) -> Json:
        meta = obj["metadata"]
        await self._answer(meta["namespace"])
        found = self.objects[obj["kind"], meta["namespace"], meta["name"]]
        if meta["resourceVersion"] != found["metadata"]["resourceVersion"]:
            raise Changed("somebody else was faster")
        self.renewals += obj["kind"] == "Lease"
        made = self.store({**found, "status": obj["status"]} if status else obj)
        if status:
            self.written[meta["namespace"], meta["name"]].set()
        return made

    async def patch(self, kind: str, namespace: str, name: str, change: Json) -> Json:
        await self._answer(namespace)
        found = copy.deepcopy(self.objects[kind, namespace, name])
        found["metadata"] |= change.get("metadata", {})
        return self.store(found)

    async def get(self, kind: str, namespace: str, name: str, api: str = "") -> Json:
        if (kind, namespace, name) not in self.objects:
            raise NotFound(name)
        return self.objects[kind, namespace, name]

    async def delete_in_foreground(self, kind: str, namespace: str, name: str) -> None:
        del self.objects[kind, namespace, name]["metadata"]["deletionTimestamp"]
        self.released.set()


class Operator:
    def __init__(self) -> None:
        self.api: Any = ApiServer()
        kinds = (names.TRAININGJOB, names.PYTORCHJOB)
        self.loops: dict[Key, Loop] = {}
        self.cache = Cache(self.api, "*", kinds, self._wake)
        self.unclaimed = UnclaimedScalers(self.cache)
        self.unclaimed.begin()
        self.tasks = [asyncio.create_task(self.unclaimed.run())]

    def _wake(self, key: Key) -> None:
        if key in self.loops:
            self.loops[key].wake("/".join(key))

    def scale(self, obj: Json) -> None:
        self.cache.put(self.api.store(obj))

    def submit(self, obj: Json) -> None:
        self.cache.put(self.api.store(obj))
        identity = (obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])

        def executor(tell: Any) -> Executor:
            cache = self.cache
            return Executor(self.api, PodDefaults(key=b"key"), tell, cache.put, cache.clock)

        made = Loop(KubernetesPlace(self.cache, executor, identity), self.cache.clock)
        self.loops[identity[1:]] = made
        self.tasks.append(asyncio.create_task(made.run()))

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def job(namespace: str, name: str, workers: int, command: str) -> Json:
    obj = training_job(["sh", "-c", command])
    created = {"uid": f"{namespace}/{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    obj["metadata"] |= {"namespace": namespace, "name": name, **created}
    obj["spec"]["etReplicaSpecs"]["worker"] |= {"replicas": workers, "maxReplicas": workers}
    return obj


def scale_out(namespace: str, name: str, job: str, status: Json | None = None) -> Json:
    """One whose job had a second to come."""
    meta = {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}"}
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": names.SCALEOUT,
        "metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"selector": {"name": job}, "toAdd": {"count": 1}, "timeout": 1},
        "status": status or {},
    }
