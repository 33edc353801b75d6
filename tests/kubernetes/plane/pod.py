"""One pod on a process node, from its arrival until its last process is gone.

Init containers run one after the other, then all containers at once, each again by the pod's
restart policy. Whatever changes is reported at once, and reports that a newer one has overtaken are
left out. An image called missing/... cannot be pulled; any other is taken to be this machine.
"""

import asyncio
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.kubernetes.plane import environment, probes
from tests.kubernetes.plane.api import STRATEGIC, ApiError, Json
from tests.kubernetes.plane.container import Container
from tests.kubernetes.plane.environment import ConfigError, Facts
from tests.kubernetes.plane.events import Recorder
from tests.kubernetes.plane.sandbox import Mount, Room
from tests.kubernetes.plane.sources import Sources
from tests.kubernetes.plane.spawning import Program
from tests.kubernetes.plane.status import PodStatus, now, report
from tests.kubernetes.plane.volumes import Volumes

OOM_KILL = "process-node/oom-kill"  # annotation: the container that is to run out of memory now
_MISSING = "missing/"
# What stands for an image: the interpreter, and this repository with its environment.
_IMAGE = tuple(dict.fromkeys((sys.base_prefix, sys.prefix, str(Path(__file__).parents[3]))))
_RETRY = 0.5  # seconds until what is missing is looked for again
_FIRST_BACKOFF, _LAST_BACKOFF = 0.2, 5.0  # seconds; a kubelet begins with ten


@dataclass(frozen=True)
class Place:
    """The node, as its pods know it."""

    name: str
    ip: str
    folder: Path
    scratch: Path  # in memory
    hidden: tuple[str, ...]
    env: Mapping[str, str]
    sources: Sources
    recorder: Recorder


class Pod:
    def __init__(self, manifest: Json, ip: str, place: Place) -> None:
        meta, spec = manifest["metadata"], manifest["spec"]
        self.manifest = manifest
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        self.ip = ip
        self.folder = place.folder / f"{self.namespace}_{self.name}_{self.uid}"
        self.hosts = self.folder / "hosts"
        self.inits = [Container(c, self.folder) for c in spec.get("initContainers", [])]
        self.containers = [Container(c, self.folder) for c in spec["containers"]]
        self.stopping = asyncio.Event()
        self._place = place
        self._facts = Facts(ip, place.ip)
        self._scratch = place.scratch / self.uid
        self._volumes = Volumes(
            manifest, self._facts, place.sources, self.folder / "volumes", self._scratch / "memory"
        )
        self._started = now()
        self._transitions: dict[str, tuple[str, str]] = {}
        self._news = asyncio.Event()
        self._killing: asyncio.TimerHandle | None = None  # None unless it is to stop
        self.done = False  # nothing of it runs any more, or will
        self._refreshing: set[asyncio.Task[None]] = set()
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def hostname(self) -> str:
        return str(self.manifest["spec"].get("hostname") or self.name)

    def find(self, container: str) -> Container | None:
        everyone = [*self.containers, *self.inits]
        return next((each for each in everyone if each.name == container), None)

    # --- what the node tells it -------------------------------------------------------------------

    def update(self, manifest: Json) -> None:
        """Its object has changed: annotations and labels, that is, and the status."""
        before, after = self.manifest["metadata"], manifest["metadata"]
        self.manifest = manifest
        victim = after.get("annotations", {}).get(OOM_KILL)
        if victim and before.get("annotations", {}).get(OOM_KILL) != victim:
            container = self.find(victim)
            if container is not None:
                container.run_out_of_memory()
        if any(before.get(said) != after.get(said) for said in ("annotations", "labels")):
            self._refresh()

    def stop(self, grace: float) -> None:
        """SIGTERM once, SIGKILL after the grace; the shortest grace ever asked for counts."""
        loop = asyncio.get_running_loop()
        if self._killing is not None and self._killing.when() <= loop.time() + grace:
            return
        if self._killing is not None:
            self._killing.cancel()
        elif grace > 0:
            self._terminate()
        self.stopping.set()
        self._killing = loop.call_later(grace, self._kill)

    def _terminate(self) -> None:
        for container in (*self.inits, *self.containers):
            if container.status.running:
                self._record("Killing", f"Stopping container {container.name}")
                container.signal(signal.SIGTERM)

    def _kill(self) -> None:
        for container in (*self.inits, *self.containers):
            container.signal(signal.SIGKILL)

    # --- its life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ends when no process is left and that has been reported."""
        reporter = asyncio.create_task(self._keep_reporting())
        try:
            self._report()
            await self._live()
        finally:
            self._volumes.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
            self.done = True
            self._report()
            await reporter

    async def _live(self) -> None:
        policy = self.manifest["spec"].get("restartPolicy", "Always")
        if policy == "Never" and self.manifest["status"].get("phase") == "Running":
            for container in (*self.inits, *self.containers):
                container.give_up()  # it began before this node did
            return
        await self._prepare()
        for init in self.inits:
            await self._keep(init, "Never" if policy == "Never" else "OnFailure")
            if init.status.exit_code != 0:
                return
        await asyncio.gather(*(self._keep(each, policy) for each in self.containers))

    async def _prepare(self) -> None:
        while not self.stopping.is_set():
            try:
                return await self._volumes.prepare(self._refresh)
            except (ConfigError, OSError) as error:
                self._record("FailedMount", str(error), warning=True)
                await self._pause(_RETRY)

    async def _keep(self, container: Container, policy: str) -> None:
        backoff = _FIRST_BACKOFF
        while not self.stopping.is_set():
            if not await self._pulled(container):
                continue
            try:
                room, program = await self._furnish(container)
            except (ConfigError, OSError) as error:
                container.wait("CreateContainerConfigError", str(error))
                self._report()
                await self._pause(_RETRY)
                continue
            if self.stopping.is_set():
                return
            running = await container.start(room, program)
            if self.stopping.is_set():
                container.signal(signal.SIGTERM)  # it may have come too early for the program
            self._record("Started", f"Started container {container.name}")
            self._report()
            with self._probed(container):
                code = await running
            if self.stopping.is_set() or policy == "Never" or (policy == "OnFailure" and not code):
                container.status = replace(container.status, final=True)
                return self._report()
            await self._back_off(container, backoff)
            backoff = min(backoff * 2, _LAST_BACKOFF)

    @contextmanager
    def _probed(self, container: Container) -> Iterator[None]:
        def tell_ready(well: bool) -> None:
            container.status = replace(container.status, ready=well and container.status.running)
            self._report()

        def kill_unless(well: bool) -> None:
            if not well:
                self._record("Unhealthy", f"Container {container.name} failed liveness", True)
                container.signal(signal.SIGKILL)

        verdicts = {"readinessProbe": tell_ready, "livenessProbe": kill_unless}
        tasks = [
            asyncio.create_task(probes.watch(container, kind, self.ip, verdict))
            for kind, verdict in verdicts.items()
            if kind in container.spec
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _pulled(self, container: Container) -> bool:
        image = container.spec.get("image", "")
        if not image.startswith(_MISSING):
            return True
        problem = f'Failed to pull image "{image}": not found'
        self._record("Failed", problem, warning=True)
        for reason in ("ErrImagePull", "ImagePullBackOff"):
            container.wait(reason, problem)
            self._report()
            await self._pause(_RETRY)
        await self.stopping.wait()
        return False

    async def _back_off(self, container: Container, seconds: float) -> None:
        self._report()
        self._record("BackOff", f"Back-off restarting container {container.name}", warning=True)
        container.prepare_restart()
        container.wait("CrashLoopBackOff")
        self._report()
        await self._pause(seconds)

    async def _furnish(self, container: Container) -> tuple[Room, Program]:
        env = await environment.variables(
            container.spec,
            self.manifest,
            self._facts,
            {**self._place.env, "HOSTNAME": self.hostname},
            lambda plural, name: self._place.sources.read((plural, self.namespace, name)),
        )
        workdir = container.spec.get("workingDir", "/")
        security = container.spec.get("securityContext", {})
        volumes = self._volumes.mounts(container.spec, env)
        room = Room(
            scratch=self._scratch / f"{container.name}-{len(container.logs)}",
            hostname=self.hostname,
            mounts=(
                Mount(self.hosts, "/etc/hosts"),
                container.message_mount(),
                *volumes,
                *_of_the_image(volumes),
            ),
            hidden=self._place.hidden,
            workdir=workdir,
            read_only=bool(security.get("readOnlyRootFilesystem")),
        )
        return room, Program(environment.command(container.spec, env), env, workdir)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except TimeoutError:
            return

    def _refresh(self) -> None:
        task = asyncio.create_task(self._refreshed())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _refreshed(self) -> None:
        try:
            await self._volumes.refresh(self.manifest)
        except ConfigError as error:  # deleted, say: the files stay as they were
            self._record("FailedMount", str(error), warning=True)

    # --- what it tells ----------------------------------------------------------------------------

    def _record(self, reason: str, message: str, warning: bool = False) -> None:
        self._place.recorder.record(self.manifest, reason, message, warning)

    def _report(self) -> None:
        self._news.set()

    async def _keep_reporting(self) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/status"
        while True:
            await self._news.wait()
            self._news.clear()
            last = self.done
            body = {"metadata": {"uid": self.uid}, "status": self._status()}
            try:
                await self._place.sources.api.persist("PATCH", path, body, STRATEGIC)
            except ApiError as error:
                if error.status not in (404, 409):  # else it is gone, or another pod by now
                    print(f"{self.namespace}/{self.name}: {error}", flush=True)
            if last:
                return

    def _status(self) -> Json:
        status = PodStatus(
            ip=self.ip,
            host_ip=self._place.ip,
            started=self._started,
            inits=tuple(c.status for c in self.inits),
            containers=tuple(c.status for c in self.containers),
        )
        return report(status, self._transitions)


def _of_the_image(volumes: Sequence[Mount]) -> list[Mount]:
    """What a volume, at /tmp or /root say, would hide of the image here, as it would not in one."""
    above = [Path(mount.target) for mount in volumes]
    hidden = [path for path in _IMAGE if any(each in Path(path).parents for each in above)]
    return [Mount(Path(path), path, read_only=True) for path in hidden]
