"""A cluster as the place of one job: its pods are the instances, and its object holds the state.

Each pass begins with the object as it is now: whether it is ours to reconcile, what its spec says,
and what is requested (`decision.py`). The state is saved in the object's status, where its version
tells that somebody else has written it, too; then it is read again. `executor.py` carries out.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from midflight.backends.place import Noted, Step, Tell, Wake
from midflight.controller import orders, roster
from midflight.controller.commands import Order, Record
from midflight.controller.spec import Spec
from midflight.controller.state import Cluster, Job
from midflight.coordinator.client import Dial
from midflight.errors import MidflightError, NotFound, StoreError, UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import Object
from midflight.kubernetes.api.errors import Changed
from midflight.kubernetes.operator import admission, scale_objects
from midflight.kubernetes.operator.admission import finalizers, is_claimed
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.operator.decision import Decision
from midflight.kubernetes.operator.event_recorder import on_job_without_pod, with_last_words
from midflight.kubernetes.operator.executor import Executor
from midflight.kubernetes.operator.observed import Observed, Pods
from midflight.kubernetes.operator.remarks import remarks
from midflight.kubernetes.resources import replicas, status, summary
from midflight.kubernetes.resources.job_spec import spec_of

FOREGROUND = "foregroundDeletion"  # while the cluster deletes what belongs to an object
PATIENCE = 3.0  # seconds
HOPELESS = 5  # passes in a row that failed, after which a job that is deleted is let go as it is
ANOTHERS = "has been written by somebody else meanwhile: reading it again"
TRIES = 5  # to save, while others keep changing the object


class KubernetesPlace:
    def __init__(
        self,
        cache: Cache,
        make_executor: Callable[[Tell], Executor],
        identity: tuple[str, str, str],
    ) -> None:
        """`identity`: kind, namespace and name of the job."""
        self.kind, self.namespace, self.job_name = identity
        self.name = f"{self.namespace}/{self.job_name}"
        self.cluster = Cluster(placed_elsewhere=True)
        self.gone = False
        self._cache = cache
        self._make_executor = make_executor
        self._tell: Tell = lambda event: None
        self._wake: Wake = lambda key: None
        self._executor = make_executor(self._tell)
        self._saved: status.Saved | None = None  # None: to be read from the object
        self._written: int | None = None  # replicas, into the spec, since the last look
        self._uid = ""
        self._refused = False  # what its spec says now
        self._remarked: int | None = None  # the generation of the object that was remarked on
        self._release_by: float | None = None  # its dependents are waited for until then
        self._begun = 0  # passes that have not come to their end since the last one that did

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self._cache.turn((self.namespace, self.job_name))

    async def open(self, tell: Tell, wake: Wake) -> None:
        self._tell, self._wake = tell, wake
        self._executor = self._make_executor(tell)
        wake(self.name)

    async def close(self) -> None:
        """Everything is the cache's, which others use too."""

    # --- observing --------------------------------------------------------------------------

    async def observe(self, keys: Collection[str]) -> Sequence[Step] | None:
        obj = self._cache.job(self.kind, self.namespace, self.job_name)
        self.gone = obj is None
        if obj is None:
            return None
        if obj["metadata"]["uid"] != self._uid:  # another one of that name
            self._uid, self._saved, self._release_by = obj["metadata"]["uid"], None, None
            self._executor = self._make_executor(self._tell)
        self._executor.retry_if_due()
        if await admission.stands_back(self._cache, obj):
            self._saved = self._release_by = None
            return None
        self._begun += 1
        if obj["metadata"].get("deletionTimestamp") and self._begun > HOPELESS:
            await self._release(obj)  # what belongs to it is the cluster's to delete
            return None
        spec = await self._spec(obj)
        if spec is None:
            self._begun = 0
            if obj["metadata"].get("deletionTimestamp"):
                await self._release(obj)
            return None
        self._remark(obj)
        if not is_claimed(obj):
            obj = await self._claim(obj)
        if (saved := await self._read(obj, spec)) is None:
            return None
        restarted = self._saved is None and saved.version > 0
        self._object, self._saved = obj, saved
        self.cluster = _cluster(saved, spec)
        self._decision = Decision(saved, spec, self._look(obj, restarted))
        return self._decision.steps

    def _remark(self, obj: Object) -> None:
        """Once for each spec that the object has had."""
        generation = obj["metadata"].get("generation")
        if not self._refused and self._remarked != generation:
            self._remarked = generation
            for reason, text in remarks(obj, self._pods().values()):
                admission.warn(self._cache, obj, reason, text)

    async def _read(self, obj: Object, spec: Spec) -> status.Saved | None:
        try:
            return self._saved or status.read(obj, spec)
        except StoreError as error:  # it is nobody's to change; but whoever deletes it means it
            admission.warn(self._cache, obj, "StateUnknown", str(error))
            if not obj["metadata"].get("deletionTimestamp"):
                raise
            await self._release(obj)
            return None

    def _look(self, obj: Object, restarted: bool) -> Observed:
        """`restarted`: another operator has reconciled the job before, and this one has not."""
        wrote, self._written = self._written, None
        return Observed(
            now=self._cache.clock(),
            pods=self._pods(),
            silent=self._cache.silent,
            delays=self._executor.delays,
            scalers=self._scalers(),
            restarted=restarted,
            deleted=bool(obj["metadata"].get("deletionTimestamp")),
            holder=admission.holder(obj),
            wrote=wrote,
        )

    def observed(self, job: Job) -> orders.Observed:
        pods = self._pods()
        seen = Observed(self._cache.clock(), pods, self._cache.silent)
        return replace(seen.instances, hosts=self._executor.hosts(pods))

    def due(self) -> float | None:
        times = [self._executor.retry_at, self._release_by]
        if self._saved is not None:
            times.append(scale_objects.gives_up_at(self._saved.job, self._scalers()))
        return min((at for at in times if at is not None), default=None)

    def dial(self, job: Job) -> Dial:
        return lambda: self._executor.dial(self._object, job, self._pods())

    def expects_run(self, job: Job) -> bool:
        return self._executor.expects_run(job)

    # --- carrying out -----------------------------------------------------------------------

    async def carry_out(self, job: Job, orders: Sequence[Order]) -> None:
        if (wanted := self._decision.replicas_to) is not None:
            self._decision.replicas_to = None
            await self._write_replicas(self._object, wanted)
            self._written = wanted
        await self._executor.carry_out(self._object, job, orders, self._pods)
        scalers = self._scalers()
        if scalers and not await scale_objects.show(self._cache, self._object, job, self._decision):
            self._wake(self.name)
        self._begun = 0

    async def remove(self, job: Job) -> None:
        """Saving that it is gone has let the object go."""

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
            await self._write_replicas(obj, former.wanted)
        return replace(former.spec, workers=former.wanted)

    async def _write_replicas(self, obj: Object, wanted: int) -> None:
        change = replicas.patch(obj, wanted)
        api = self._cache.api
        self._cache.put(await api.patch(self.kind, self.namespace, self.job_name, change))

    async def _claim(self, obj: Object) -> Object:
        """With our finalizer the object stays until its pods are gone."""
        finalizers = [*(obj["metadata"].get("finalizers") or ()), names.FINALIZER]
        return await self._set_finalizers(obj, finalizers)

    async def _release(self, obj: Object) -> None:
        """Takes our finalizer off, as nothing of it runs any more.

        Its dependents go first: else a new job of that name would find them, and then lose them. A
        cluster that takes long over that is not waited for.
        """
        api, now = self._cache.api, self._cache.clock()
        if self._release_by is None:
            self._release_by = now + PATIENCE
            if not finalizers(obj) & {FOREGROUND, "orphan"}:
                await api.delete_in_foreground(self.kind, self.namespace, self.job_name)
        with contextlib.suppress(NotFound):
            obj = await api.get(self.kind, self.namespace, self.job_name)
            if obj["metadata"]["uid"] != self._uid or not is_claimed(obj):
                self._release_by = None
                return
            if FOREGROUND in finalizers(obj) and now < self._release_by:
                return
            left = finalizers(obj) - {names.FINALIZER, FOREGROUND}
            await self._set_finalizers(obj, sorted(left))
        self._release_by = None

    async def _set_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        meta = {"finalizers": finalizers, "resourceVersion": obj["metadata"]["resourceVersion"]}
        api = self._cache.api
        made = await api.patch(self.kind, self.namespace, self.job_name, {"metadata": meta})
        return self._cache.put(made)

    # --- saving -----------------------------------------------------------------------------

    async def save(self, cluster: Cluster, records: Sequence[Noted]) -> None:
        assert self._saved is not None
        for record in [*(noted.record for noted in records), *self._decision.records]:
            if not _is_said_already(record, self._pods()):
                record = with_last_words(on_job_without_pod(record, self._pods()), self._pods())
                self._cache.recorder.note(self._object, record)
        if (job := cluster.jobs.get(self.name)) is None:
            await self._release(self._object)  # that it is gone needs no other record
            self._begun = 0
        else:
            made = (job, self._decision.replicas, self._refused)
            if (self._saved.job, self._saved.replicas, self._saved.refused) != made or (
                self._saved.version == 0
            ):
                former = self._saved.job
                await self._save(status.Saved(job, self._saved.version + 1, *made[1:]))
                self._cache.metrics.saved(former, job)
        self.cluster = cluster

    async def _save(self, saved: status.Saved) -> None:
        """In the object's status. If anybody else has written ours there, it is read again.

        Only the lease says who leads: whoever may write this status could depose us else.
        """
        assert self._saved is not None
        obj = self._object
        for _ in range(TRIES):
            now = self._cache.clock()
            seen = status.Seen(self._pods(), replicas.has_no_master(obj))
            summed = self._summary(obj, saved.job)
            shown = status.write(saved, obj.get("status") or {}, now, summed, seen)
            shown["observedGeneration"] = obj["metadata"].get("generation")
            try:
                made = await self._cache.api.replace({**obj, "status": shown}, status=True)
            except Changed:
                obj = await self._cache.api.get(self.kind, self.namespace, self.job_name)
                found = ((obj.get("status") or {}).get("midflight") or {}).get("version", 0)
                if obj["metadata"]["uid"] != self._uid or found != self._saved.version:
                    self._saved = None  # the next pass begins with the object as it is now
                    self._cache.put(obj)
                    raise MidflightError(f"the state of {self.name} {ANOTHERS}") from None
                continue
            self._saved, self._object = saved, self._cache.put(made)
            return
        raise MidflightError("others change the object faster than its status can be saved")

    def _summary(self, obj: Object, job: Job) -> dict[str, Any]:
        chief = self._pods().get(roster.chief_name(job.spec))
        return summary.of_job(obj, job, chief.host_ip if chief is not None else "")

    def _pods(self) -> Pods:
        found = self._cache.pods.of((self.namespace, self.job_name))
        return {name: pod for name, pod in found.items() if pod.owner == self._uid}

    def _scalers(self) -> list[Object]:
        scalable = self.kind == names.TRAININGJOB
        return self._cache.scalers_of((self.namespace, self.job_name)) if scalable else []


def _cluster(saved: status.Saved, spec: Spec) -> Cluster:
    """Of one job, as its spec says now; none before an operator has seen it."""
    if saved.version == 0:
        return Cluster(placed_elsewhere=True)
    job = saved.job if saved.job.spec == spec else replace(saved.job, spec=spec)
    return Cluster(jobs={spec.key: job}, placed_elsewhere=True)


def _is_said_already(record: Record, pods: Pods) -> bool:
    """Why a pod waits is the scheduler's or the kubelet's to say, once there is one."""
    return record.reason == "Pending" and record.source.removeprefix("instance/") in pods
