"""The operator at work: it waits to lead, then looks after every job until it no longer does.

A keeper is started for each job that is there, and ends with it. Whoever stops leading stops at
once; what runs in the cluster goes on without an operator, and the next one takes it up.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import Any

from midflight.backends.kubernetes import names
from midflight.backends.kubernetes.pods.rendering import Site
from midflight.errors import JobFailed, Unreachable
from midflight.operator import keys
from midflight.operator.api import EVERYWHERE, Api
from midflight.operator.hands import Hands
from midflight.operator.health import Figures
from midflight.operator.keeper import Keeper
from midflight.operator.leading import Leadership, NotLeading
from midflight.operator.mirror import Key
from midflight.operator.office import Office
from midflight.operator.scale_objects import Strays

LEASE = "midflight-operator"
NO_DEFINITIONS = (
    "the cluster does not know TrainingJobs: run `midflight operator install` with the right to "
    "make CustomResourceDefinitions"
)

log = logging.getLogger("midflight.operator")


@dataclass(frozen=True)
class Settings:
    identity: str
    namespace: str  # its own: of the lease and of its key
    watched: str = EVERYWHERE  # the namespace it looks after
    runtime_image: str = ""
    node_loss: int = 30  # seconds
    listen: tuple[str, int] | None = None
    pytorch: bool | None = None  # None: if the definition is ours


class Operator:
    def __init__(self, client: Any, settings: Settings) -> None:
        self._settings = settings
        lease_api = Api(client)
        self.leadership = Leadership(lease_api, settings.namespace, LEASE, settings.identity)
        self._plain = lease_api
        self._api = Api(client, self.leadership.permit)
        self._office: Office | None = None
        self._strays: Strays | None = None
        self._keepers: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._objects: dict[tuple[str, str, str], Keeper] = {}
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = False  # keepers may be started

    async def run(self) -> None:
        """Waits to lead, leads, and waits again when it no longer does, until it is cancelled."""
        await self._check_definitions()
        while True:
            log.info("%s waits for the lease", self._settings.identity)
            await self.leadership.acquire()
            log.info("%s leads", self._settings.identity)
            try:
                await self._lead()
            except (NotLeading, Unreachable) as error:
                log.warning("%s; jobs go on", error)
                self.leadership.held = False

    async def _lead(self) -> None:
        """Ends with NotLeading, and leaves nothing running."""
        secret = await keys.own_key(self._plain, self._settings.namespace)
        self._office = office = self._make_office(secret, await self._kinds())
        self._broken = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(mirror.run()) for mirror in office.mirrors]
        tasks.append(asyncio.create_task(office.recorder.run()))
        self._strays = Strays(office)
        tasks.append(asyncio.create_task(self._strays.run()))
        lead = asyncio.create_task(self.leadership.keep())
        try:
            synced = asyncio.gather(*(mirror.synced.wait() for mirror in office.mirrors))
            tasks.append(asyncio.create_task(self._begin(synced)))
            done, _ = await asyncio.wait(
                {lead, self._broken, *tasks[:-1]}, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
            raise NotLeading(f"{self._settings.identity} does not lead any more")
        finally:
            self._open = False
            everything = [lead, *tasks, *self._keepers.values()]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            self._office = None

    async def _begin(self, synced: "asyncio.Future[Any]") -> None:
        """Nothing is decided before everything there is has been seen."""
        await synced
        assert self._office is not None
        self._open = True
        for job in self._office.jobs():
            self._keep(*job)
        assert self._strays is not None
        for key in self._office.scalers.jobs():
            self._strays.note(key)

    def figures(self) -> Figures:
        office = self._office
        phases = Counter[str]()
        if office is not None:
            for kind, namespace, name in office.jobs():
                obj = office.job(kind, namespace, name) or {}
                phases[(obj.get("status") or {}).get("phase") or "New"] += 1
        return Figures(
            leading=self.leadership.held,
            jobs=dict(phases),
            pods=office.pod_count if office is not None else 0,
            looks=office.counts.looks if office is not None else 0,
            failures=office.counts.failures if office is not None else 0,
            requests=self._api.requests + self._plain.requests,
        )

    def ready(self) -> bool:
        """A standby is; one that leads is once it knows what there is."""
        office = self._office
        return office is None or all(mirror.synced.is_set() for mirror in office.mirrors)

    # --- keepers ----------------------------------------------------------------------------

    def _wake(self, key: Key) -> None:
        if not self._open or self._office is None:
            return
        for kind in self._office.kinds_of(key):
            self._keep(kind, *key)
        if self._strays is not None:
            self._strays.note(key)
        for kind in (names.TRAININGJOB, names.PYTORCHJOB):
            if (keeper := self._objects.get((kind, *key))) is not None:
                keeper.wake()

    def _keep(self, kind: str, namespace: str, name: str) -> None:
        identity = (kind, namespace, name)
        if identity in self._objects or self._office is None:
            return
        keeper = Keeper(self._office, kind, namespace, name)
        self._objects[identity] = keeper
        task = asyncio.create_task(keeper.run())
        self._keepers[identity] = task
        task.add_done_callback(lambda done: self._ended(identity, done))

    def _ended(self, identity: tuple[str, str, str], task: "asyncio.Task[None]") -> None:
        self._keepers.pop(identity, None)
        self._objects.pop(identity, None)
        if task.cancelled():
            return
        if (error := task.exception()) is not None and not self._broken.done():
            self._broken.set_exception(error)
        elif self._open and self._office is not None:  # it may have come back meanwhile
            kind, *key = identity
            if kind in self._office.kinds_of((key[0], key[1])):
                self._keep(*identity)

    # --- what there is ----------------------------------------------------------------------

    async def _check_definitions(self) -> None:
        if await self._plain.definition(f"trainingjobs.{names.GROUP}") is None:
            raise JobFailed(NO_DEFINITIONS)

    async def _kinds(self) -> tuple[str, ...]:
        """Kubeflow's own definition of a PyTorchJob means that its operator runs them."""
        found = await self._plain.definition(f"pytorchjobs.{names.PYTORCH_GROUP}")
        labels = (found or {}).get("metadata", {}).get("labels") or {}
        ours = labels.get(names.MANAGED_BY) == names.MANAGER
        wanted = ours if self._settings.pytorch is None else self._settings.pytorch
        if found is not None and not wanted:
            log.info("PyTorchJobs are another operator's here: standing back")
        both = found is not None and wanted
        return (names.TRAININGJOB, names.PYTORCHJOB) if both else (names.TRAININGJOB,)

    def _make_office(self, secret: bytes, kinds: tuple[str, ...]) -> Office:
        site = Site(self._settings.runtime_image, self._settings.node_loss)

        def hands(tell: Any, put_pod: Any) -> Hands:
            return Hands(self._api, site, secret, tell, put_pod, office.clock)

        office = Office(self._api, self._settings.watched, kinds, hands, self._wake)
        return office
