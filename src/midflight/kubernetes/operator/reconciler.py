"""Reconciles one job whenever something about it changes or one of its deadlines passes.

Each pass begins with what is observed now, not with what has happened, so nothing is lost while no
operator runs. It decides (`decision.py`), saves the outcome in the job's status, and only then has
it carried out (`executor.py`). A pass that fails is repeated after a growing pause, and never
affects another job.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from midflight.controller import roster
from midflight.controller.commands import Record, StopInstance
from midflight.controller.events import Event, ServerStarted
from midflight.controller.orders import open_requests
from midflight.controller.spec import Spec
from midflight.controller.state import Job
from midflight.errors import MidflightError, NotFound, StoreError, UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import Object
from midflight.kubernetes.api.errors import Changed
from midflight.kubernetes.operator import admission, scale_objects
from midflight.kubernetes.operator.admission import finalizers, is_claimed
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.decision import Decision
from midflight.kubernetes.operator.executor import Executor, Tell
from midflight.kubernetes.operator.leader_election import NotLeader
from midflight.kubernetes.operator.observed import Observed, Pods, begins_anew
from midflight.kubernetes.resources import replicas, status, summary
from midflight.kubernetes.resources.job_spec import spec_of

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 60.0
FOREGROUND = "foregroundDeletion"  # while the cluster deletes what belongs to an object
PATIENCE = 3.0  # seconds
TRIES = 5  # to save, while others keep changing the object

log = logging.getLogger("midflight.operator")


class JobReconciler:
    def __init__(
        self,
        cache: Cache,
        make_executor: Callable[[Tell], Executor],
        identity: tuple[str, str, str],
    ) -> None:
        """`identity`: kind, namespace and name of the job."""
        self.kind, self.namespace, self.name = identity
        self._cache = cache
        self._make_executor = make_executor
        self._executor = make_executor(self.tell)
        self._awake = asyncio.Event()
        self._told: list[Event] = []  # and not saved yet
        self._heard = 0  # how many of those the last decision knew
        self._saved: status.Saved | None = None  # None: to be read from the object
        self._written: int | None = None  # replicas, into the spec, since the last look
        self._inherited: frozenset[str] = frozenset()  # requests of an operator before this one
        self._uid = ""
        self._refused = False  # what its spec says now
        self._due: float | None = None
        self._release_by: float | None = None  # its dependents are waited for until then
        self._failures = 0

    def wake(self) -> None:
        self._awake.set()

    def tell(self, event: Event) -> None:
        self._told.append(event)
        self.wake()

    async def run(self) -> None:
        """Until the job is gone."""
        self.wake()
        try:
            while True:
                await self._wait()
                self._awake.clear()
                if not await self._reconcile_safely():
                    return
        finally:
            self._executor.close()

    async def _wait(self) -> None:
        left = None if self._due is None else max(self._due - self._cache.clock(), 0.01)
        try:
            async with asyncio.timeout(left):
                await self._awake.wait()
        except TimeoutError:
            pass

    async def _reconcile_safely(self) -> bool:
        """Whether there is still something to reconcile."""
        try:
            there = await self._reconcile()
            self._failures = 0
            self._cache.counts.reconciles += 1
            return there
        except NotLeader:
            raise
        except MidflightError as error:
            log.warning("%s/%s: %s", self.namespace, self.name, error)
        except Exception:  # a broken object never stops the others
            log.exception("a bug: %s/%s was not reconciled", self.namespace, self.name)
        self._failures += 1
        self._cache.counts.failures += 1
        await asyncio.sleep(min(FIRST_PAUSE * 2 ** min(self._failures, 10), LONGEST_PAUSE))
        self.wake()
        return True

    # --- a pass -----------------------------------------------------------------------------

    async def _reconcile(self) -> bool:
        obj = self._cache.job(self.kind, self.namespace, self.name)
        if obj is None:
            return False
        if obj["metadata"]["uid"] != self._uid:  # another one of that name
            self._uid, self._saved, self._release_by = obj["metadata"]["uid"], None, None
            self._told.clear()
            self._executor.close()
            self._executor = self._make_executor(self.tell)
        if await admission.stands_back(self._cache, obj):
            return True
        going = obj["metadata"].get("deletionTimestamp")
        spec = await self._spec(obj)
        if spec is None:
            return not going or await self._release(obj)
        if not is_claimed(obj):
            obj = await self._claim(obj)
        try:
            saved = self._saved or status.read(obj, spec)
        except StoreError as error:  # it is nobody's to change; but whoever deletes it means it
            admission.warn(self._cache, obj, "StateUnknown", str(error))
            if going:
                return await self._release(obj)
            raise
        restarted = self._saved is None and saved.version > 0
        if restarted:
            self._inherited = open_requests(saved.job)
        self._saved = saved
        decision = Decision(saved, spec, self._observe(obj, restarted))
        await self._carry_out(obj, decision)
        return True

    def _observe(self, obj: Object, restarted: bool) -> Observed:
        """`restarted`: another operator has reconciled the job before, and this one has not."""
        now = self._cache.clock()
        self._heard = len(self._told)
        wrote, self._written = self._written, None
        return Observed(
            now=now,
            pods=self._pods(),
            silent=self._cache.silent,
            delays=self._executor.delays,
            scalers=self._scalers(),
            told=[*([ServerStarted(now)] if restarted else []), *self._told],
            deleted=bool(obj["metadata"].get("deletionTimestamp")),
            holder=admission.holder(obj),
            wrote=wrote,
            hosts=self._executor.hosts(self._pods()),
            asking=self._executor.asking(self._saved.job) if self._saved else (),
            asked_before=self._inherited,
        )

    async def _carry_out(self, obj: Object, decision: Decision) -> None:
        job = decision.job
        assert self._saved is not None
        for record in decision.records:
            if not _is_said_already(record, self._pods()):
                self._cache.recorder.note(obj, record)
        if job is None:
            await self._release(obj)
            return
        if self._saved.version == 0 or job != self._saved.job or self._differs(decision):
            saved = status.Saved(job, self._saved.version + 1, decision.replicas, self._refused)
            obj = await self._save(obj, saved)
        del self._told[: self._heard]
        if decision.replicas_to is not None:
            self._written = decision.replicas_to
            change = replicas.patch(obj, decision.replicas_to)
            self._cache.put(
                await self._cache.api.patch(self.kind, self.namespace, self.name, change)
            )
        await self._act(obj, job, decision)
        if self._scalers() and not await scale_objects.show(self._cache, obj, job, decision):
            self.wake()
        due = decision.next_deadline(self._pods(), self._scalers())
        times = [at for at in (due, self._executor.retry_at) if at is not None]
        self._due = min(times, default=None)

    def _differs(self, decision: Decision) -> bool:
        now = (decision.replicas, self._refused)
        return self._saved is not None and now != (self._saved.replicas, self._saved.refused)

    async def _act(self, obj: Object, job: Job, decision: Decision) -> None:
        found = self._executor.due(decision.orders, decision.now)
        stops = any(isinstance(order, StopInstance) for order in found)
        if stops and (job.deleting or job.held):
            why = "the job was deleted" if job.deleting else "the job was suspended"
            await self._executor.end_training(job, self._pods(), why)
        if begins_anew(job, self._pods(), found):
            await self._executor.forget_run(job)
        await self._executor.carry_out(obj, job, found, self._pods)

    # --- the object -------------------------------------------------------------------------

    async def _spec(self, obj: Object) -> Spec | None:
        """None if it is not one; then the object says why, and nothing else happens."""
        self._refused = False
        try:
            return spec_of(obj)
        except UsageError as error:
            wrong, self._refused = str(error), True
        if self._saved is None:
            return await admission.spec_of_unknown(self._cache, obj, wrong)
        former = self._saved.job
        admission.warn(self._cache, obj, "SpecRefused", wrong)
        if replicas.workers(obj) != former.wanted:
            change = replicas.patch(obj, former.wanted)
            answer = await self._cache.api.patch(self.kind, self.namespace, self.name, change)
            self._cache.put(answer)
        return replace(former.spec, workers=former.wanted)

    async def _claim(self, obj: Object) -> Object:
        """With our finalizer the object stays until its pods are gone."""
        finalizers = [*(obj["metadata"].get("finalizers") or ()), names.FINALIZER]
        return await self._set_finalizers(obj, finalizers)

    async def _release(self, obj: Object) -> bool:
        """Takes our finalizer off, as nothing of it runs any more; whether it is still waited for.

        Its dependents go first: else a new job of that name would find them, and then lose them. A
        cluster that takes long over that is not waited for.
        """
        api, now = self._cache.api, self._cache.clock()
        if self._release_by is None:
            self._release_by = now + PATIENCE
            if not finalizers(obj) & {FOREGROUND, "orphan"}:
                await api.delete_in_foreground(self.kind, self.namespace, self.name)
        with contextlib.suppress(NotFound):
            obj = await api.get(self.kind, self.namespace, self.name)
            if obj["metadata"]["uid"] != self._uid or not is_claimed(obj):
                return False
            if FOREGROUND in finalizers(obj) and now < self._release_by:
                self._due = self._release_by
                return True
            left = finalizers(obj) - {names.FINALIZER, FOREGROUND}
            await self._set_finalizers(obj, sorted(left))
        return False

    async def _set_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        meta = {"finalizers": finalizers, "resourceVersion": obj["metadata"]["resourceVersion"]}
        made = await self._cache.api.patch(self.kind, self.namespace, self.name, {"metadata": meta})
        return self._cache.put(made)

    async def _save(self, obj: Object, saved: status.Saved) -> Object:
        """In the object's status; if anybody else has written ours there, we are not alone."""
        assert self._saved is not None
        for _ in range(TRIES):
            now = self._cache.clock()
            shown = status.write(saved, obj.get("status") or {}, now, self._summary(obj, saved.job))
            shown["observedGeneration"] = obj["metadata"].get("generation")
            try:
                made = await self._cache.api.replace({**obj, "status": shown}, status=True)
            except Changed:
                obj = await self._cache.api.get(self.kind, self.namespace, self.name)
                found = ((obj.get("status") or {}).get("midflight") or {}).get("version", 0)
                if obj["metadata"]["uid"] != self._uid or found != self._saved.version:
                    text = f"another operator writes {self.namespace}/{self.name}"
                    raise NotLeader(text) from None
                continue
            self._saved = saved
            return self._cache.put(made)
        raise MidflightError("others change the object faster than its status can be saved")

    def _summary(self, obj: Object, job: Job) -> dict[str, Any]:
        chief = self._pods().get(roster.chief_name(job.spec))
        return summary.of_job(obj, job, chief.host_ip if chief is not None else "")

    def _pods(self) -> Pods:
        found = self._cache.pods.of((self.namespace, self.name))
        return {name: pod for name, pod in found.items() if pod.owner == self._uid}

    def _scalers(self) -> list[Object]:
        if self.kind != names.TRAININGJOB:
            return []
        return self._cache.scalers_of((self.namespace, self.name))


def _is_said_already(record: Record, pods: Pods) -> bool:
    """Why a pod waits is the scheduler's or the kubelet's to say, once there is one."""
    return record.reason == "Pending" and record.source.removeprefix("instance/") in pods
