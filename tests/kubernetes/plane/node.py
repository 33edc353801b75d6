"""A process node: a small kubelet that runs the containers of its pods as local processes.

It registers a Node, renews its lease, runs the pods that are bound to it, and serves their logs
and `exec` to the API server. Kill it with SIGKILL and it is a lost node: its pods die with it and
nobody tells. It has an address, 127.A.B.1, and its pods have others in the same 127.A.B.0/24.

There are no real containers here, and so no images, users, limits, capabilities or networks: what a
manifest says of these is ignored. All pods share this machine's network: one that listens on every
address takes that port from all the others.
"""

import argparse
import asyncio
import os
import random
import shutil
import ssl
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tests.kubernetes.plane import membership, names, sandbox
from tests.kubernetes.plane.api import ApiError, Json
from tests.kubernetes.plane.async_api import AsyncApi
from tests.kubernetes.plane.events import Recorder
from tests.kubernetes.plane.membership import Identity
from tests.kubernetes.plane.names import Backend, Service
from tests.kubernetes.plane.pod import Place, Pod
from tests.kubernetes.plane.serving import Kubelet
from tests.kubernetes.plane.sources import Sources

PORT = 10250  # where a kubelet listens
_GATHER = 0.01  # seconds in which changes of names are put together
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Settings:
    name: str
    kubeconfig: Path
    folder: Path
    certificate: tuple[Path, Path]  # and its key
    capacity: dict[str, str]
    labels: dict[str, str]


class Node:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._api = AsyncApi(settings.kubeconfig)
        self._pods: dict[str, Pod] = {}  # by uid
        self._services: dict[tuple[str, str], Service] = {}
        self._backends: dict[str, Backend] = {}  # by uid
        self._known: list[tuple[str, str, str]] = []
        self._texts: dict[str, str] = {}  # what a hosts file says, by namespace
        self._renaming: asyncio.TimerHandle | None = None
        self._last_address = 1
        self._tasks: set[asyncio.Task[None]] = set()
        self._place: Place

    async def run(self) -> None:
        """Until it is killed."""
        scratch = self.settings.folder / "scratch"
        sandbox.keep_mounts_to_oneself()
        sandbox.mount_scratch(scratch)
        ip, port = await self._listen()
        self._place = Place(
            name=self.settings.name,
            ip=ip,
            folder=self.settings.folder / "pods",
            scratch=scratch,
            hidden=(str(self.settings.folder),),
            env=self._environment(),
            sources=Sources(self._api),
            recorder=Recorder(self._api, self.settings.name),
        )
        me = Identity(
            name=self.settings.name,
            ip=ip,
            port=port,
            capacity=self.settings.capacity,
            labels=self.settings.labels,
            boot=str(uuid4()),
        )
        await membership.register(self._api, me)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(membership.keep(self._api, me))
            tasks.create_task(self._watch_services())
            tasks.create_task(self._watch_pods())

    def find(self, namespace: str, name: str) -> Pod | None:
        """Of several that had the name one after the other, the newest."""
        pods = reversed(self._pods.values())
        return next((pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)

    async def _listen(self) -> tuple[str, int]:
        """Takes a /24 by listening on its first address: whoever comes second finds it taken."""
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self._api.access.authority)
        )
        context.verify_mode = ssl.CERT_REQUIRED  # only the API server may ask
        context.load_cert_chain(*self.settings.certificate)
        kubelet = Kubelet(self.find)
        for attempt in range(100):
            ip = f"127.{random.randrange(16, 240)}.{random.randrange(256)}.1"
            port = PORT + attempt // 10
            try:
                await asyncio.start_server(kubelet.serve, ip, port, ssl=context)
            except OSError:
                continue
            return ip, port
        raise RuntimeError("no free address in 127.0.0.0/8")

    def _environment(self) -> dict[str, str]:
        access = self._api.access
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        tools = Path(sys.executable).parent
        return inherited | {
            "PATH": f"{tools}:{inherited.get('PATH', os.defpath)}",
            "KUBERNETES_SERVICE_HOST": access.host,
            "KUBERNETES_SERVICE_PORT": str(access.port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(access.port),
        }

    # --- pods -------------------------------------------------------------------------------------

    async def _watch_pods(self) -> None:
        """All pods of the cluster: its own to run them, the others for their addresses."""
        async for event, thing in self._api.watch("/api/v1/pods"):
            if event == "LISTED":
                for pod in thing["items"]:
                    self._seen(pod)
                there = {pod["metadata"]["uid"] for pod in thing["items"]}
                for uid in {*self._backends, *self._pods} - there:
                    self._gone(uid)
            elif event == "DELETED":
                self._gone(thing["metadata"]["uid"])
            else:
                self._seen(thing)

    def _seen(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        backend, before = names.backend(pod), self._backends.pop(uid, None)
        if backend is not None:
            self._backends[uid] = backend
        if backend != before:
            self._names_changed()
        if pod["spec"].get("nodeName") == self.settings.name:
            self._mind(uid, pod)

    def _gone(self, uid: str) -> None:
        if self._backends.pop(uid, None) is not None:
            self._names_changed()
        if uid in self._pods:
            self._pods[uid].stop(0)

    def _mind(self, uid: str, pod: Json) -> None:
        """A pod of this node is new, or has changed."""
        meta, phase = pod["metadata"], pod.get("status", {}).get("phase")
        if uid in self._pods:
            self._pods[uid].update(pod)
        elif "deletionTimestamp" in meta:  # nothing of it runs here, so it can go
            self._later(self._delete(meta["namespace"], meta["name"], uid))
            return
        elif phase not in ("Succeeded", "Failed"):
            self._pods[uid] = Pod(pod, self._address(pod), self._place)
            self._write_hosts(self._pods[uid])
            self._later(self._run(self._pods[uid]))
        if "deletionTimestamp" in meta and uid in self._pods:
            self._pods[uid].stop(meta.get("deletionGracePeriodSeconds", 30))

    async def _run(self, pod: Pod) -> None:
        await pod.run()
        await pod.stopping.wait()  # until somebody deletes it; its logs can be read meanwhile
        await self._delete(pod.namespace, pod.name, pod.uid)
        del self._pods[pod.uid]
        shutil.rmtree(pod.folder / "volumes", ignore_errors=True)

    async def _delete(self, namespace: str, name: str, uid: str) -> None:
        """Tells the API server that nothing is left of it."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            await self._api.persist("DELETE", path, options)
        except ApiError as error:
            if error.status not in (404, 409):
                print(f"{namespace}/{name} not deleted: {error}", flush=True)

    def _address(self, pod: Json) -> str:
        if pod["spec"].get("hostNetwork"):
            return self._place.ip
        taken = {each.ip for each in self._pods.values() if not each.done}
        subnet = self._place.ip.rpartition(".")[0]
        while True:  # the one that has been free for longest
            self._last_address = self._last_address % 254 + 1
            address = f"{subnet}.{self._last_address}"
            if self._last_address != 1 and address not in taken:
                return address

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            print(f"{task.get_coro()}: {error!r}", flush=True)

    # --- names ------------------------------------------------------------------------------------

    async def _watch_services(self) -> None:
        async for event, thing in self._api.watch("/api/v1/services"):
            if event == "LISTED":
                found = [names.service(item) for item in thing["items"]]
                self._services = {(s.namespace, s.name): s for s in found if s is not None}
            else:
                key = (thing["metadata"]["namespace"], thing["metadata"]["name"])
                service = names.service(thing) if event != "DELETED" else None
                self._services.pop(key, None)
                if service is not None:
                    self._services[key] = service
            self._names_changed()

    def _names_changed(self) -> None:
        if self._renaming is None:
            loop = asyncio.get_running_loop()
            self._renaming = loop.call_later(_GATHER, self._rename)

    def _rename(self) -> None:
        self._renaming = None
        known = names.records(self._services.values(), self._backends.values())
        if known != self._known:
            self._known = known
            self._texts.clear()
            for pod in self._pods.values():
                if not pod.done:
                    self._write_hosts(pod)

    def _write_hosts(self, pod: Pod) -> None:
        """In place, because the file is mounted where containers look."""
        if pod.namespace not in self._texts:
            self._texts[pod.namespace] = names.hosts_file(pod.namespace, self._known)
        text = (self._texts[pod.namespace] + f"{pod.ip}\t{pod.hostname}\n").encode()
        descriptor = os.open(pod.hosts, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, text)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(",") if pair)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.plane.node")
    parser.add_argument("name")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the pods' files")
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--capacity", type=_pairs, default={}, help="cpu=8,memory=8Gi,...")
    parser.add_argument("--labels", type=_pairs, default={}, help="key=value,...")
    given = parser.parse_args()
    settings = Settings(
        name=given.name,
        kubeconfig=given.kubeconfig,
        folder=given.folder,
        certificate=(given.certificate, given.key),
        capacity=given.capacity,
        labels=given.labels,
    )
    asyncio.run(Node(settings).run())


if __name__ == "__main__":
    main()
