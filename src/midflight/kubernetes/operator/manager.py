"""The operator: waits until it leads, then reconciles every job until it no longer leads.

There is a loop for each job, from the job's creation to its end. An operator that stops
leading stops at once; what runs in the cluster goes on, and the next leader takes it up.
"""

import asyncio
import base64
import contextlib
import logging
import secrets
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from midflight.backends.loop import Loop
from midflight.backends.place import Deposed, Tell
from midflight.errors import Exists, JobFailed, MidflightError, NotFound, Unreachable
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import AsyncConnection
from midflight.kubernetes.api.paths import EVERYWHERE
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.executor import Executor
from midflight.kubernetes.operator.informer import Key
from midflight.kubernetes.operator.leader_election import LeaderElection, NotLeader
from midflight.kubernetes.operator.metrics import Figures, Metrics
from midflight.kubernetes.operator.place import KubernetesPlace
from midflight.kubernetes.operator.unclaimed import UnclaimedScalers
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.resources.labels import is_ours

LEASE = "midflight-operator"
KEY_SECRET = f"{LEASE}-key"  # from which the secrets of all jobs are derived
CRD = "CustomResourceDefinition"
NO_DEFINITIONS = (
    "the cluster does not know TrainingJobs: run `midflight operator install` with the right to "
    "make CustomResourceDefinitions"
)

KINDS_SECONDS = 30.0  # between two looks at which kinds are ours
LONGEST_PAUSE = 60.0  # seconds before a pass that failed is made again

log = logging.getLogger("midflight.operator")


@dataclass(frozen=True)
class Settings:
    identity: str
    namespace: str  # its own: of the lease and of its key
    watched: str = EVERYWHERE  # the namespace it looks after
    pods: PodDefaults = field(default_factory=PodDefaults)
    listen: tuple[str, int] | None = None
    pytorch: bool | None = None  # None: if the definition is ours


class Manager:
    def __init__(self, client: Any, settings: Settings) -> None:
        self._settings = settings
        lease_api = AsyncConnection(client)
        self.leadership = LeaderElection(lease_api, settings.namespace, LEASE, settings.identity)
        self._plain = lease_api
        self._api = AsyncConnection(client, self.leadership.permit)
        self._cache: Cache | None = None
        self._secret = b""  # from which the secrets of all jobs are derived
        self._unclaimed: UnclaimedScalers | None = None
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._loops: dict[tuple[str, str, str], Loop] = {}
        self._passes = self._failures = 0  # of loops that have ended
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = False  # loops may be started

    async def run(self) -> None:
        """Waits to lead, leads, and waits again when it no longer does, until it is cancelled."""
        await self._check_definitions()
        while True:
            log.info("%s waits for the lease", self._settings.identity)
            await self.leadership.acquire()
            log.info("%s leads", self._settings.identity)
            try:
                await self._lead()
            except (NotLeader, Unreachable) as error:
                log.warning("%s; jobs keep running", error)
                self.leadership.held = False

    async def _lead(self) -> None:
        """Ends with NotLeader, and leaves nothing running."""
        self._secret = await _own_key(self._plain, self._settings.namespace)
        kinds = await served_kinds(self._plain, self._settings.pytorch)
        if names.PYTORCHJOB not in kinds:
            log.info("PyTorchJobs are not there, or another operator's: standing back")
        self._cache = cache = Cache(self._api, self._settings.watched, kinds, self._wake)
        self._broken = asyncio.get_running_loop().create_future()
        tasks = [asyncio.create_task(informer.run()) for informer in cache.informers]
        tasks.append(asyncio.create_task(cache.recorder.run()))
        tasks.append(asyncio.create_task(self._until_other_kinds(kinds)))
        self._unclaimed = UnclaimedScalers(cache)
        tasks.append(asyncio.create_task(self._unclaimed.run()))
        lead = asyncio.create_task(self.leadership.keep())
        try:
            synced = asyncio.gather(*(informer.synced.wait() for informer in cache.informers))
            tasks.append(asyncio.create_task(self._begin(synced)))
            done, _ = await asyncio.wait(
                {lead, self._broken, *tasks[:-1]}, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
            raise NotLeader(f"{self._settings.identity} no longer leads")
        finally:
            self._open = False
            everything = [lead, *tasks, *self._tasks.values()]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            self._cache = None

    async def _begin(self, synced: "asyncio.Future[Any]") -> None:
        """Nothing is decided before everything there is has been seen."""
        await synced
        assert self._cache is not None
        self._open = True
        for job in self._cache.jobs():
            self._start(*job)
        assert self._unclaimed is not None
        self._unclaimed.begin()

    def metrics(self) -> str:
        known = self._cache.metrics if self._cache is not None else Metrics()
        return known.text(self._figures())

    def _figures(self) -> Figures:
        cache = self._cache
        phases, restarts = Counter[str](), Counter[tuple[str, str]]()
        if cache is not None:
            for kind, namespace, name in cache.jobs():
                status = (cache.job(kind, namespace, name) or {}).get("status") or {}
                phases[status.get("phase") or "New"] += 1
                restarts[namespace, name] += int(status.get("restartCount") or 0)
        return Figures(
            leading=self.leadership.held,
            jobs=dict(phases),
            pods=cache.pod_count if cache is not None else 0,
            reconciles=self._passes + sum(loop.passes for loop in self._loops.values()),
            failures=self._failures + sum(loop.failures for loop in self._loops.values()),
            requests=self._api.requests + self._plain.requests,
            restarts=restarts,
        )

    def ready(self) -> bool:
        """A standby is; one that leads is once it knows what there is."""
        cache = self._cache
        return cache is None or all(informer.synced.is_set() for informer in cache.informers)

    # --- loops ------------------------------------------------------------------------------

    def _wake(self, key: Key) -> None:
        if not self._open or self._cache is None:
            return
        for kind in self._cache.kinds_of(key):
            self._start(kind, *key)
        for kind in (names.TRAININGJOB, names.PYTORCHJOB):
            if (loop := self._loops.get((kind, *key))) is not None:
                loop.wake("/".join(key))

    def _start(self, kind: str, namespace: str, name: str) -> None:
        identity = (kind, namespace, name)
        if identity in self._loops or self._cache is None:
            return
        place = KubernetesPlace(self._cache, self._make_executor, identity)
        loop = Loop(place, self._cache.clock, longest_pause=LONGEST_PAUSE)
        self._loops[identity] = loop
        task = asyncio.create_task(loop.run())
        self._tasks[identity] = task
        task.add_done_callback(lambda done: self._ended(identity, done))

    def _ended(self, identity: tuple[str, str, str], task: "asyncio.Task[None]") -> None:
        self._tasks.pop(identity, None)
        loop = self._loops.pop(identity)
        self._passes += loop.passes
        self._failures += loop.failures
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Deposed | Unreachable):
            if not self._broken.done():
                self._broken.set_exception(error)
        elif error is not None:  # whatever one job's object says, the others must go on
            log.error("a bug: %s/%s is not reconciled", *identity[1:], exc_info=error)
            asyncio.get_running_loop().call_later(LONGEST_PAUSE, self._start_again, identity)
        else:
            self._start_again(identity)

    def _start_again(self, identity: tuple[str, str, str]) -> None:
        """If it is there: it may have come back meanwhile."""
        if self._open and self._cache is not None:
            kind, *key = identity
            if kind in self._cache.kinds_of((key[0], key[1])):
                self._start(*identity)
            else:
                self._cache.metrics.forget((key[0], key[1]))

    # --- what there is ----------------------------------------------------------------------

    async def _check_definitions(self) -> None:
        if await self._plain.find(CRD, "", f"trainingjobs.{names.GROUP}") is None:
            raise JobFailed(NO_DEFINITIONS)

    async def _until_other_kinds(self, kinds: tuple[str, ...]) -> None:
        """PyTorchJob may be taken over, or be given back, while the operator runs."""
        await until_other_kinds(self._plain, self._settings.pytorch, kinds)
        raise NotLeader("the kinds to run have changed")

    def _make_executor(self, tell: Tell) -> Executor:
        """Of one job."""
        assert self._cache is not None
        cache, defaults = self._cache, replace(self._settings.pods, key=self._secret)
        return Executor(self._api, defaults, tell, cache.put, cache.clock)


async def served_kinds(api: AsyncConnection, pytorch: bool | None = None) -> tuple[str, ...]:
    """Kubeflow's own definition of a PyTorchJob means that its operator runs them."""
    found = await api.find(CRD, "", f"pytorchjobs.{names.PYTORCH_GROUP}")
    both = found is not None and (is_ours(found) if pytorch is None else pytorch)
    return (names.TRAININGJOB, names.PYTORCHJOB) if both else (names.TRAININGJOB,)


async def until_other_kinds(
    api: AsyncConnection, pytorch: bool | None, kinds: tuple[str, ...], pause: float = KINDS_SECONDS
) -> None:
    now = kinds
    while now == kinds:
        await asyncio.sleep(pause)
        with contextlib.suppress(MidflightError):  # an API server that is away says nothing
            now = await served_kinds(api, pytorch)


async def _own_key(api: AsyncConnection, namespace: str) -> bytes:
    """Made by the first operator that needs it, and kept for all that follow."""
    try:
        return _key_of(await api.get("Secret", namespace, KEY_SECRET))
    except NotFound:
        pass
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": KEY_SECRET, "namespace": namespace},
        "data": {"key": base64.b64encode(secrets.token_bytes(32)).decode()},
    }
    try:
        return _key_of(await api.create(made))
    except Exists:  # another operator was faster
        return _key_of(await api.get("Secret", namespace, KEY_SECRET))


def _key_of(secret: dict[str, object]) -> bytes:
    data = secret["data"]
    assert isinstance(data, dict)
    return base64.b64decode(data["key"])
