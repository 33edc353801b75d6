"""The cache that the loops of all jobs share: informers, their indices, the API and the clock."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import AsyncConnection, Object
from midflight.kubernetes.api.fair_gate import FairGate
from midflight.kubernetes.api.paths import EVERYWHERE
from midflight.kubernetes.operator import scale_requests
from midflight.kubernetes.operator.event_recorder import EventRecorder
from midflight.kubernetes.operator.informer import Informer, JobIndex, Key
from midflight.kubernetes.operator.metrics import Metrics
from midflight.kubernetes.resources.pod import Pod, node_answers, read_pod
from midflight.kubernetes.resources.reduction import reduce

PASSES = 48  # over jobs, at a time
SHARE = 8  # of those, over the jobs of one namespace
OURS = {names.MANAGED_BY: names.MANAGER}


class Cache:
    def __init__(
        self,
        api: AsyncConnection,
        namespace: str,
        kinds: tuple[str, ...],
        wake: Callable[[Key], None],
    ) -> None:
        """`namespace`: the one to watch, or all; `wake` is called with each job that changes.

        An operator of one namespace has no right to watch nodes.
        """
        self._wake = wake
        self.api = api
        self.clock = time.time
        self._passes = FairGate(PASSES, SHARE)
        self.recorder = EventRecorder(api, self.clock)
        self.metrics = Metrics()
        self.on_scaler: Callable[[Object], None] = lambda scaler: None  # that is new or changed
        self.on_job_gone: Callable[[Key], None] = lambda key: None
        self.pods: JobIndex[Pod] = JobIndex(lambda pod: pod.job, wake)
        self.scalers: dict[str, JobIndex[Object]] = {
            kind: JobIndex(scale_requests.job_of, wake) for kind in (names.SCALEOUT, names.SCALEIN)
        }
        self._jobs = {
            kind: Informer(api, kind, namespace, reduce, self._job_changed) for kind in kinds
        }
        self._pods: Informer[Pod] = Informer(
            api, "Pod", namespace, read_pod, self.pods.update, OURS
        )
        self._scalers = {
            kind: Informer(api, kind, namespace, reduce, partial(self._scaler_changed, index))
            for kind, index in self.scalers.items()
        }
        self._by_kind: dict[str, Informer[Any]] = {
            **self._jobs,
            **self._scalers,
            "Pod": self._pods,
        }
        self._nodes: Informer[bool] | None = None
        if namespace == EVERYWHERE:
            self._nodes = Informer(api, "Node", namespace, node_answers, self._node_changed)
        self.silent: set[str] = set()  # nodes whose kubelets do not answer

    @property
    def informers(self) -> list[Informer[Any]]:
        return [*self._by_kind.values(), *([] if self._nodes is None else [self._nodes])]

    @asynccontextmanager
    async def turn(self, job: Key) -> AsyncIterator[None]:
        """Held during a pass over the job."""
        namespace, _ = job
        async with self._passes.turn(namespace):
            with self.metrics.reconciling(job):
                yield

    def jobs(self) -> list[tuple[str, str, str]]:
        """Kind, namespace and name of each."""
        return [(kind, *key) for kind, informer in self._jobs.items() for key in informer.items]

    @property
    def pod_count(self) -> int:
        return len(self._pods.items)

    def kinds_of(self, key: Key) -> list[str]:
        return [kind for kind, informer in self._jobs.items() if key in informer.items]

    def job(self, kind: str, namespace: str, name: str) -> Object | None:
        return self._jobs[kind].items.get((namespace, name))

    def put(self, obj: Object) -> Object:
        """An answer of the API server, so that nobody has to wait for the watch."""
        self._by_kind[obj["kind"]].put(obj)
        return obj

    def scalers_of(self, job: Key) -> list[Object]:
        """A ScaleOut and a ScaleIn may have the same name."""
        return [each for index in self.scalers.values() for each in index.of(job).values()]

    def _job_changed(self, key: Key, obj: Object | None) -> None:
        if obj is None:
            self.on_job_gone(key)
        self._wake(key)

    def _scaler_changed(self, index: JobIndex[Object], key: Key, scaler: Object | None) -> None:
        index.update(key, scaler)
        if scaler is not None:
            self.on_scaler(scaler)

    def _node_changed(self, key: Key, answers: bool | None) -> None:
        _, name = key
        silent = not answers  # or gone
        if silent == (name in self.silent):
            return
        (self.silent.add if silent else self.silent.discard)(name)
        for pod in self._pods.items.values():
            if pod.node == name:
                self._wake((pod.namespace, pod.job))
