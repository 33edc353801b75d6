"""What a job's object, its pods and its scale objects mean for the controller, in a fixed order.

Each step is given the state that those before it have led to, and answers with events. What the
controller has no word for is collected beside them: refusals of scale objects, warnings, and the
number of replicas that has to be written back. Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from midflight.backends.place import Step
from midflight.controller import events, roster
from midflight.controller.commands import Record
from midflight.controller.orders import news
from midflight.controller.spec import Spec
from midflight.controller.state import Cluster, Code, Job
from midflight.kubernetes import names
from midflight.kubernetes.operator import scale_requests
from midflight.kubernetes.operator.observed import CODE_ROLE, Observed
from midflight.kubernetes.resources.pod import Pod
from midflight.kubernetes.resources.status import Saved, is_over

Object = Mapping[str, Any]
JobStep = Callable[[Job, float], Iterable[events.Event]]
NO_SCRIPT = "its script is not run: the operator tells the training of the change itself"
CODE_POD_FAILED = "its pod ended without a message"


class Decision:
    def __init__(self, saved: Saved, spec: Spec, observed: Observed) -> None:
        self.key = spec.key
        self.observed = observed
        self.replicas = saved.replicas
        self.records: list[Record] = []
        self.refusals: dict[str, str] = {}  # of scale objects, by uid
        self.replicas_to: int | None = None  # what the spec's replicas have to become
        self._saved = saved
        self._spec = spec
        scalers = sorted(observed.scalers, key=scale_requests.order)
        steps: list[JobStep] = [
            self._see_deletion,
            self._see_pods,
            self._see_delays,
            self._see_code,
            self._see_holder,
            *(partial(self._see_scaler, scaler) for scaler in scalers),
            self._see_replicas,
            self._settle_replicas,
        ]
        self.steps: list[Step] = [self._see_job, *map(self._of_job, steps)]

    def _of_job(self, step: JobStep) -> Step:
        def of_job(cluster: Cluster, now: float) -> Iterable[events.Event]:
            job = cluster.jobs.get(self.key)
            return step(job, now) if job is not None else ()

        return of_job

    # --- the object -------------------------------------------------------------------------

    def _see_job(self, cluster: Cluster, now: float) -> Iterator[events.Event]:
        if self._saved.version == 0:  # no operator has seen the job before
            yield events.JobSubmitted(now, self._spec, self._saved.job.uid)
        elif self.observed.restarted:
            yield events.ServerStarted(now)

    def _see_deletion(self, job: Job, now: float) -> Iterator[events.Event]:
        if self.observed.deleted and not job.deleting:
            yield events.JobDeleted(now, self.key)

    def _see_holder(self, job: Job, now: float) -> Iterator[events.Event]:
        if (who := self.observed.holder) and not job.held:
            yield events.JobHeld(now, self.key, who)
        elif job.held and not who:
            yield events.JobReleased(now, self.key)

    # --- its pods ---------------------------------------------------------------------------

    def _see_pods(self, job: Job, now: float) -> Iterable[events.Event]:
        return news(job, self.observed.instances)

    def _see_delays(self, job: Job, now: float) -> Iterator[events.Event]:
        for name, reason in self.observed.delays.items():
            if (instance := job.instances.get(name)) is not None:
                yield events.InstanceDelayed(now, self.key, name, instance.attempt, reason)

    def _see_code(self, job: Job, now: float) -> Iterator[events.Event]:
        if job.code is not Code.FETCHING:
            return
        name, pods = names.code_pod(job.spec.name), self.observed.pods
        pod = pods.get(name)
        if why := self.observed.delays.get(name) or (pod.waits_for if pod is not None else ""):
            self._warn("Pending", f"its code is not fetched yet: {why}")
        if pod is not None and pod.role == CODE_ROLE:
            has_commit = job.spec.sync is not None and job.spec.sync.mode == "git"
            yield from self._see_code_pod(pod, has_commit, now)

    def _see_code_pod(self, pod: Pod, has_commit: bool, now: float) -> Iterator[events.Event]:
        said = pod.message.strip()
        if pod.over and pod.code == 0 and bool(said) == has_commit:
            yield events.CodeFetched(now, self.key, said)
        elif pod.over or pod.tried == names.NO_SUCH_COMMIT:
            yield events.CodeNotFetched(now, self.key, said or pod.end or CODE_POD_FAILED)
        elif pod.tried:
            self._warn("Pending", f"its code is not fetched yet: {pod.last_line}; trying again")

    # --- its size ---------------------------------------------------------------------------

    def _see_scaler(self, scaler: Object, job: Job, now: float) -> Iterator[events.Event]:
        if is_over(scaler) or scale_requests.operation_of(job, scaler) is not None:
            return
        name = scaler["metadata"]["name"]
        match scale_requests.judge(job, scaler, now):
            case scale_requests.Refusal(reason):
                self.refusals[scaler["metadata"]["uid"]] = reason
                self._warn("ScaleRefused", f"{name}: {reason}")
            case events.ScaleAsked() as asked:
                if scaler["spec"].get("script"):
                    self._warn("ScriptIgnored", f"{name}: {NO_SCRIPT}")
                yield asked
            case None:
                pass

    def _see_replicas(self, job: Job, now: float) -> Iterator[events.Event]:
        """A new number of workers in the spec is a request, unless we wrote it ourselves."""
        wanted = self._spec.workers
        if job.finished or job.deleting:
            return
        if wanted not in (self.replicas, self.observed.wrote, roster.projected(job)):
            match scale_requests.judge_replicas(job, wanted, now):
                case None:
                    return
                case scale_requests.Refusal(reason):
                    self._warn("ScaleRefused", f"{wanted} workers: {reason}")
                case asked:
                    yield asked
        self.replicas = wanted

    def _settle_replicas(self, job: Job, now: float) -> Iterable[events.Event]:
        seen = self.replicas == self._spec.workers and not job.finished and not job.deleting
        if seen and not roster.open_operations(job) and job.wanted != self.replicas:
            self.replicas_to = job.wanted
        return ()

    def _warn(self, reason: str, message: str) -> None:
        job = self.key.partition("/")[2]
        self.records.append(Record(self.key, f"job/{job}", "Warning", reason, message))
