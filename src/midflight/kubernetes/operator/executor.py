"""Carries out what was decided for one job: at the API server, and at the job's coordinator.

Everything here may be done twice: what exists already is adopted, what is gone already is fine. A
pod that cannot be created does not fail the job: the reason is kept in `delays` until it can be.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from midflight.backends import words
from midflight.backends.place import Tell
from midflight.compat.torchelastic.secret import of_run
from midflight.controller.commands import (
    FetchCode,
    Order,
    StartInstance,
    StopInstance,
    WriteHosts,
)
from midflight.controller.events import (
    CodeNotFetched,
    InstanceNotStarted,
)
from midflight.controller.state import Instance, Job
from midflight.errors import Exists, MidflightError, NotFound, Unreachable, UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import AsyncConnection, Object
from midflight.kubernetes.api.errors import Rejected, UnknownKind
from midflight.kubernetes.operator import log_keeper
from midflight.kubernetes.operator.observed import Pods, begins_anew, launcher_ip
from midflight.kubernetes.pods import PodDefaults, code, dependents
from midflight.kubernetes.pods import pod as pods
from midflight.kubernetes.resources.elastic_policy import (
    has_member_for_each_slot,
    rendezvous_port,
    torchrun_in_every_pod,
    torchrun_variables,
)
from midflight.kubernetes.resources.pod import Pod
from midflight.protocol.messages import StopRequested
from midflight.protocol.wire import AsyncWire, dial

CALLER = "midflight-operator"
AT_ONCE = 16  # requests of one job at a time
PDB_API, OLD_PDB_API = "policy/v1", "policy/v1beta1"  # the newer one is there since 1.21
END_SECONDS = 3.0  # for a training to end before its pods are told to
UNREADABLE = ("Secret", "Event")  # of all others the operator sees whose they are
RETRY = 1.0  # seconds until a pod that could not be created is tried again
SHORTEST_GRACE = 1  # seconds; 0 would take the pod off the list while it may still run

log = logging.getLogger("midflight.operator")


@dataclass
class Executor:
    """Of one job."""

    api: AsyncConnection
    defaults: PodDefaults
    tell: Tell
    put: Callable[[Object], Object]  # into the cache
    clock: Callable[[], float]
    delays: dict[str, str] = field(default_factory=dict)  # instance to reason
    retry_at: float | None = None
    _has_dependents: bool = False
    _least: int | None = None  # workers that the budget leaves, as it was last written
    _hosts: tuple[Mapping[str, int], str] | None = None  # last written, and for which launcher

    # --- pods -------------------------------------------------------------------------------

    def retry_if_due(self) -> None:
        if self.retry_at is not None and self.clock() >= self.retry_at:
            self.retry_at = None

    async def carry_out(
        self, obj: Object, job: Job, orders: Sequence[Order], find: Callable[[], Pods]
    ) -> None:
        if self.retry_at is not None:  # a pod could not be created, and is tried again then
            orders = [o for o in orders if not isinstance(o, StartInstance | FetchCode)]
        deletions = [order for order in orders if isinstance(order, StopInstance)]
        if deletions and (job.deleting or job.held):
            why = "the job was deleted" if job.deleting else "the job was suspended"
            await self._end_training(obj, job, find(), why)
        if begins_anew(job, find(), orders):
            await self._forget_run(job)
        namespace = job.spec.namespace
        if failed := log_keeper.failed_pods(job, deletions, find()):
            await log_keeper.keep_logs(self.api, obj, job, failed, self.clock())
        await _in_parallel(
            [
                self.api.delete("Pod", namespace, each.instance, _notice(obj, job, each))
                for each in deletions
            ]
        )
        await self._create_pods(obj, job, orders)
        for order in orders:
            if isinstance(order, WriteHosts):
                await self._write_hosts(obj, order.hosts, find())
        if self._has_dependents or job.instances:
            await self._follow_budget(obj, job)

    async def _create_pods(self, obj: Object, job: Job, orders: Sequence[Order]) -> None:
        creations = [order for order in orders if isinstance(order, StartInstance)]
        if any(isinstance(order, FetchCode) for order in orders):
            await self._start_code(obj, job)
        if creations and await self._ensure_dependents(obj, job, creations):
            found = [job.instances[each.instance] for each in creations]
            # In a thread: a command of 128 KiB takes a while to read, and the lease cannot wait.
            made = await asyncio.to_thread(self._render, obj, job, found)
            await _in_parallel([self._start(job, *pair) for pair in zip(found, made, strict=True)])
        known = {*job.instances, names.code_pod(job.spec.name)}
        self.delays = {name: why for name, why in self.delays.items() if name in known}

    async def _ensure_dependents(
        self, obj: Object, job: Job, creations: list[StartInstance]
    ) -> bool:
        """What must exist before any pod of the job does; whether it exists now."""
        if self._has_dependents:
            return True
        made = dependents.objects(obj, job, self.token(job), self.defaults, PDB_API)
        self._least = dependents.budget(obj, job.spec, self.defaults)["spec"]["minAvailable"]
        try:
            await _in_parallel([self._create(each) for each in made])
        except (Rejected, Unreachable) as error:
            for each in creations:
                self._delay(each.instance, f"what it needs cannot be created: {error}")
            return False
        self._has_dependents = True
        return True

    def _render(
        self, obj: Object, job: Job, instances: Sequence[Instance]
    ) -> list[Object | UsageError]:
        return [
            _made_or_not(partial(pods.render, obj, job, each, self.defaults)) for each in instances
        ]

    async def _start(self, job: Job, instance: Instance, pod: Object | UsageError) -> None:
        if wrong := await self._create_pod(instance.name, pod):
            told = (self.clock(), job.key, instance.name, instance.attempt, wrong)
            self.tell(InstanceNotStarted(*told))

    async def _start_code(self, obj: Object, job: Job) -> None:
        pod = _made_or_not(lambda: code.code_pod(obj, job, self.defaults))
        if wrong := await self._create_pod(names.code_pod(job.spec.name), pod):
            self.tell(CodeNotFetched(self.clock(), job.key, wrong))

    async def _create_pod(self, name: str, pod: Object | UsageError) -> str:
        """What is wrong with the pod for good; a reason that may pass is kept as its delay."""
        try:
            if isinstance(pod, UsageError):
                raise pod
            await self._create(pod)
        except (Rejected, Unreachable, UsageError) as error:
            if isinstance(error, Rejected) and error.for_good:
                return str(error)
            self._delay(name, str(error))
        else:
            self.delays.pop(name, None)
        return ""

    def _delay(self, instance: str, reason: str) -> None:
        self.delays[instance] = reason
        self.retry_at = self.clock() + RETRY

    async def _create(self, obj: Object) -> None:
        try:
            made = await self.api.create(obj)
        except Exists:
            if obj["kind"] in UNREADABLE:
                return
            if obj["kind"] == "PodDisruptionBudget":
                self._least = None  # as somebody has written it before
            made = await self._adopt(obj)
        except (NotFound, UnknownKind):
            if obj["kind"] == names.PODGROUP:
                log.info("no PodGroups here: %s has its labels alone", obj["metadata"]["name"])
                return
            if obj["apiVersion"] != PDB_API:
                raise
            await self._create({**obj, "apiVersion": OLD_PDB_API})
            return
        if obj["kind"] == "Pod":
            self.put(made)

    async def _adopt(self, obj: Object) -> Object:
        """The one that is there already, if it belongs to this job."""
        kind, meta = obj["kind"], obj["metadata"]
        found = await self.api.get(kind, meta["namespace"], meta["name"], obj["apiVersion"])
        if not _owners(found) & _owners(obj):
            text = f"there is a {kind} {meta['name']} already that is not this job's"
            raise Rejected(409, f"{text}: delete it, or give the job another name")
        return found

    async def _follow_budget(self, obj: Object, job: Job) -> None:
        """What the object says of it may change while the job runs."""
        wanted = dependents.budget(obj, job.spec, self.defaults)
        least = wanted["spec"]["minAvailable"]
        if least == self._least or job.finished or job.deleting:
            return
        try:
            for api in (PDB_API, OLD_PDB_API):
                with contextlib.suppress(NotFound, UnknownKind):
                    await self._set_budget(wanted, api)
                    break
            else:
                if least:
                    await self._create(wanted)
        except Rejected as error:  # no reason to leave the rest of the job undone
            log.warning("the budget of %s is not set: %s", job.key, error)
        self._least = least

    async def _set_budget(self, wanted: Object, api: str) -> None:
        meta, least = wanted["metadata"], wanted["spec"]["minAvailable"]
        name = (wanted["kind"], meta["namespace"], meta["name"])
        found = await self.api.get(*name, api)
        if found["spec"].get("minAvailable") != least and _owners(found) & _owners(wanted):
            await self.api.patch(*name, {"spec": {"minAvailable": least}}, api)

    # --- hosts ------------------------------------------------------------------------------

    def hosts(self, found: Pods) -> Mapping[str, int] | None:
        """What the hostfile says; None if it was not written for the launcher there is."""
        return self._hosts[0] if self._hosts and self._hosts[1] == _chief_uid(found) else None

    async def _write_hosts(self, obj: Object, hosts: Mapping[str, int], found: Pods) -> None:
        """The hostfile, and a nudge to the launcher's kubelet to look at it now."""
        if not self._has_dependents and not hosts:
            return
        made = dependents.hosts(obj, hosts)
        meta = made["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        await self.api.patch("ConfigMap", namespace, name, {"data": made["data"]})
        if (chief := _chief(found)) is not None:
            mark = hashlib.sha256(repr(sorted(hosts.items())).encode()).hexdigest()[:16]
            change = {"metadata": {"annotations": {names.HOSTS: mark}}}
            await self.api.patch("Pod", namespace, chief.name, change)
        self._hosts = (hosts, _chief_uid(found))

    async def _forget_run(self, job: Job) -> None:
        """What the job's coordinator kept for the next launcher; that one begins anew."""
        nothing = {"data": None, "binaryData": None}
        name = names.state_map(job.spec.name)
        with contextlib.suppress(NotFound):
            await self.api.patch("ConfigMap", job.spec.namespace, name, nothing)

    # --- the training -----------------------------------------------------------------------

    async def _end_training(self, obj: Object, job: Job, found: Pods, why: str) -> None:
        """Before its pods go: a launcher that is merely told to go leaves its workers training."""
        if not self.expects_run(job):
            return
        with contextlib.suppress(MidflightError, TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                wire = await self.dial(obj, job, found)
                try:
                    wire.send(StopRequested(why))
                    while True:  # until it hangs up
                        await wire.receive()
                finally:
                    wire.close()

    async def dial(self, obj: Object, job: Job, found: Pods) -> AsyncWire:
        """The coordinator, which Midflight's torchrun has as well, where its users meet."""
        if not (address := launcher_ip(job, found)):
            raise Unreachable("its launcher is not up")
        token = self.token(job).encode()
        if not torchrun_in_every_pod(job.spec):
            return await dial(f"{address}:{names.PORT}", "client", CALLER, token)
        if not has_member_for_each_slot(job.spec):
            raise Unreachable("its torchruns have other numbers of members")
        told = torchrun_variables(obj, job.spec)
        secret = of_run(token, told["PET_RDZV_ID"])
        return await dial(f"{address}:{rendezvous_port(obj)}", "client", CALLER, secret)

    def expects_run(self, job: Job) -> bool:
        """An image may have a torchrun of its own, which nobody can ask."""
        spec = job.spec
        return words.uses_midflight(spec.command, spec.run_in) and not torchrun_in_every_pod(spec)

    def token(self, job: Job) -> str:
        """The job's own secret: it follows from ours, so that we never have to read one."""
        text = f"{job.key}/{job.uid}".encode()
        return hmac.new(self.defaults.key, text, hashlib.sha256).hexdigest()


def _made_or_not(render: Callable[[], Object]) -> Object | UsageError:
    try:
        return render()
    except UsageError as error:
        return error


def _notice(obj: Object, job: Job, order: StopInstance) -> int:
    """Seconds for a pod to end: what its template says, where it does and there is no hurry."""
    if order.force:
        return 0  # it is taken off the list whatever its node says
    grace = max(SHORTEST_GRACE, round(order.grace))
    if grace <= SHORTEST_GRACE or order.instance not in job.instances:
        return grace
    return pods.own_grace(obj, job.instances[order.instance]) or grace


def _chief(found: Pods) -> Pod | None:
    return next((pod for pod in found.values() if pod.role in ("launcher", "master")), None)


def _chief_uid(found: Pods) -> str:
    chief = _chief(found)
    return chief.uid if chief is not None else ""


def _owners(obj: Object) -> set[str]:
    return {each["uid"] for each in obj["metadata"].get("ownerReferences") or ()}


async def _in_parallel(requests: list[Any]) -> None:
    """Some at a time; the first error is raised once all are done."""
    left, errors = iter(requests), []

    async def work() -> None:
        for request in left:
            try:
                await request
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

    try:
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    finally:
        for request in requests:
            request.close()  # one that never had its turn
    if errors:
        raise errors[0]
