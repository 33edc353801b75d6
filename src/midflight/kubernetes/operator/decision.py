"""One pass over a job, decided and not yet carried out.

It tells the controller what is observed, in a fixed order, and collects what comes of it.
What is then to be done follows from the state alone (`controller/orders.py`). Pure; `reconciler.py`
saves the outcome first and has it carried out afterwards.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from midflight.controller import events, roster
from midflight.controller.commands import AskResize, Order, Record
from midflight.controller.deadlines import deadlines_of
from midflight.controller.handle import handle
from midflight.controller.orders import news, next_look, orders
from midflight.controller.spec import Spec
from midflight.controller.state import Cluster, Code, Job, Phase
from midflight.kubernetes import names
from midflight.kubernetes.operator import scale_requests
from midflight.kubernetes.operator.observed import CODE_ROLE, Observed, Pods
from midflight.kubernetes.resources.status import Saved, is_over

Object = Mapping[str, Any]
NO_SCRIPT = "its script is not run: the operator tells the training of the change itself"
CODE_POD_FAILED = "its pod ended without a message"


class Decision:
    """`orders`, `records` and the rest are what is to be carried out for `job`."""

    def __init__(self, saved: Saved, spec: Spec, observed: Observed) -> None:
        self.key = spec.key
        self.observed = observed
        self.now = observed.now
        self.replicas = saved.replicas
        self.records: list[Record] = []
        self.refusals: dict[str, str] = {}  # of scale objects, by uid
        self.replicas_to: int | None = None  # what the spec's replicas have to become
        if saved.version == 0:  # no operator has seen the job before
            self._cluster = Cluster(placed_elsewhere=True)
            self._take([events.JobSubmitted(self.now, spec, saved.job.uid)])
        else:
            job = saved.job if saved.job.spec == spec else replace(saved.job, spec=spec)
            self._cluster = Cluster(jobs={spec.key: job}, placed_elsewhere=True)
        self._take(observed.told)
        if observed.deleted and self.job is not None and not self.job.deleting:
            self._take([events.JobDeleted(self.now, self.key)])
        self._see_pods()
        self._see_holder()
        self._see_scalers()
        self._see_replicas(spec.workers)
        self._take([events.TimePassed(self.now)])

    @property
    def job(self) -> Job | None:
        """None once nothing is left of it."""
        return self._cluster.jobs.get(self.key)

    @property
    def orders(self) -> list[Order | AskResize]:
        return orders(self.job, self.observed.instances) if self.job is not None else []

    def _take(self, told: Iterable[events.Event]) -> None:
        for event in told:
            self._cluster, records = handle(self._cluster, event)
            self.records += records

    # --- what is observed -------------------------------------------------------------------

    def _see_pods(self) -> None:
        if self.job is None:
            return
        self._take(news(self.job, self.observed.instances))
        self._take(self._delay_news(self.observed.delays))
        self._say_why_code_waits(self.observed.pods, self.observed.delays)
        self._take(self._code_news(self.observed.pods))

    def _see_holder(self) -> None:
        who = self.observed.holder
        if self.job is not None and bool(who) != bool(self.job.held):
            held = events.JobHeld(self.now, self.key, who)
            self._take([held if who else events.JobReleased(self.now, self.key)])

    def _see_scalers(self) -> None:
        for scaler in sorted(self.observed.scalers, key=scale_requests.order):
            name = scaler["metadata"]["name"]
            job = self.job
            if (
                job is None
                or is_over(scaler)
                or scale_requests.operation_of(job, scaler) is not None
            ):
                continue
            match scale_requests.judge(job, scaler, self.now):
                case scale_requests.Refusal(reason):
                    self.refusals[scaler["metadata"]["uid"]] = reason
                    self._warn("ScaleRefused", f"{name}: {reason}")
                case events.ScaleAsked() as asked:
                    self._take([asked])
                    if scaler["spec"].get("script"):
                        self._warn("ScriptIgnored", f"{name}: {NO_SCRIPT}")
                case None:
                    pass

    def _see_replicas(self, wanted: int) -> None:
        """A new number of workers in the spec is a request, unless we wrote it ourselves."""
        job = self.job
        if job is None or job.finished or job.deleting:
            return
        if wanted not in (self.replicas, self.observed.wrote, roster.projected(job)):
            match scale_requests.judge_replicas(job, wanted, self.now):
                case None:
                    return
                case scale_requests.Refusal(reason):
                    self._warn("ScaleRefused", f"{wanted} workers: {reason}")
                case asked:
                    self._take([asked])
        self.replicas = wanted
        job = self.job
        if job is not None and not roster.open_operations(job) and job.wanted != wanted:
            self.replicas_to = job.wanted

    # --- what comes of it -------------------------------------------------------------------

    def next_deadline(self, pods: Pods, scalers: Iterable[Object]) -> float | None:
        if self.job is None:
            return None
        found = [*deadlines_of(self.job)]
        seen = replace(self.observed, pods=pods).instances
        if (late := next_look(self.job, seen)) is not None:
            found.append(late)
        if self.job.phase is Phase.PENDING:
            found += [scale_requests.gives_up_at(each) for each in scalers if not is_over(each)]
        return min(found, default=None)

    def _delay_news(self, delays: Mapping[str, str]) -> list[events.Event]:
        instances = self.job.instances if self.job is not None else {}
        return [
            events.InstanceDelayed(self.now, self.key, name, instances[name].attempt, reason)
            for name, reason in delays.items()
            if name in instances
        ]

    def _say_why_code_waits(self, pods: Pods, delays: Mapping[str, str]) -> None:
        if self.job is None or self.job.code is not Code.FETCHING:
            return
        name = names.code_pod(self.job.spec.name)
        pod = pods.get(name)
        if why := delays.get(name) or (pod.waits_for if pod is not None else ""):
            self._warn("Pending", f"its code is not fetched yet: {why}")

    def _code_news(self, pods: Pods) -> list[events.Event]:
        job = self.job
        if job is None or job.code is not Code.FETCHING:
            return []
        sync = job.spec.sync
        if sync is None or sync.mode != "git" or _is_commit(sync.revision):
            commit = sync.revision if sync is not None and sync.mode == "git" else ""
            return [events.CodeFetched(self.now, self.key, commit)]
        pod = pods.get(names.code_pod(job.spec.name))
        if pod is None or pod.role != CODE_ROLE or not pod.over:
            return []
        if pod.code == 0 and pod.message.strip():
            return [events.CodeFetched(self.now, self.key, pod.message.strip())]
        reason = pod.message.strip() or pod.end or CODE_POD_FAILED
        return [events.CodeNotFetched(self.now, self.key, reason)]

    def _warn(self, reason: str, message: str) -> None:
        job = self.key.partition("/")[2]
        self.records.append(Record(self.key, f"job/{job}", "Warning", reason, message))


def _is_commit(revision: str) -> bool:
    return len(revision) == 40 and all(sign in "0123456789abcdef" for sign in revision)
