"""The office: what all keepers share. The mirrors, the API server, the clock, and the counts."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from midflight.backends.kubernetes import names, wishing
from midflight.backends.kubernetes.seeing import Pod, node_answers, see
from midflight.controller.events import Event
from midflight.operator.api import EVERYWHERE, Api, Object
from midflight.operator.hands import Hands
from midflight.operator.mirror import Key, Mirror
from midflight.operator.records import Recorder
from midflight.operator.shelf import Shelf

OURS = {names.MANAGED_BY: names.MANAGER}


@dataclass
class Counts:
    looks: int = 0
    failures: int = 0


class Office:
    def __init__(
        self,
        api: Api,
        namespace: str,
        kinds: tuple[str, ...],
        hands: Callable[[Callable[[Event], None], Callable[[Object], None]], Hands],
        wake: Callable[[Key], None],
    ) -> None:
        """`namespace`: the one to look after, or all; `wake` hears of jobs to look at.

        Whoever looks after one namespace only has no right to look at nodes.
        """
        self._wake = wake
        self.api = api
        self.clock = time.time
        self.counts = Counts()
        self.recorder = Recorder(api, self.clock)
        self._make_hands = hands
        self.pods: Shelf[Pod] = Shelf(lambda pod: pod.job, wake)
        self.scalers: Shelf[Object] = Shelf(wishing.job_of, wake)
        self._jobs = {
            kind: Mirror(api, kind, namespace, slim, lambda key, _: wake(key)) for kind in kinds
        }
        self._pods: Mirror[Pod] = Mirror(api, "Pod", namespace, see, self._pod_changed, OURS)
        self._scalers = {
            kind: Mirror(api, kind, namespace, slim, self._scaler_noter(kind))
            for kind in (names.SCALEOUT, names.SCALEIN)
        }
        self._nodes: Mirror[bool] | None = None
        if namespace == EVERYWHERE:
            self._nodes = Mirror(api, "Node", namespace, node_answers, self._node_changed)
        self.silent: set[str] = set()  # nodes whose kubelets are not heard of

    @property
    def mirrors(self) -> "list[Mirror[Object] | Mirror[Pod] | Mirror[bool]]":
        nodes = [] if self._nodes is None else [self._nodes]
        return [*self._jobs.values(), self._pods, *self._scalers.values(), *nodes]

    def jobs(self) -> list[tuple[str, str, str]]:
        """Kind, namespace and name of each."""
        return [(kind, *key) for kind, mirror in self._jobs.items() for key in mirror.items]

    @property
    def pod_count(self) -> int:
        return len(self._pods.items)

    def kinds_of(self, key: Key) -> list[str]:
        return [kind for kind, mirror in self._jobs.items() if key in mirror.items]

    def job(self, kind: str, namespace: str, name: str) -> Object | None:
        return self._jobs[kind].items.get((namespace, name))

    def put_job(self, obj: Object) -> Object:
        self._jobs[obj["kind"]].put(obj)
        return obj

    def put_scaler(self, obj: Object) -> None:
        self._scalers[obj["kind"]].put(obj)

    def hands_for(self, tell: Callable[[Event], None]) -> Hands:
        return self._make_hands(tell, self._pods.put)

    def _pod_changed(self, key: Key, pod: Pod | None) -> None:
        self.pods.note(key, pod, key in self._pods.items)

    def _node_changed(self, key: Key, answers: bool | None) -> None:
        _, name = key
        there = self._nodes is not None and key in self._nodes.items
        silent = not answers or not there
        if silent == (name in self.silent):
            return
        (self.silent.add if silent else self.silent.discard)(name)
        for pod in self._pods.items.values():
            if pod.node == name:
                self._wake((pod.namespace, pod.job))

    def _scaler_noter(self, kind: str) -> Callable[[Key, Object | None], None]:
        """A ScaleOut and a ScaleIn may have the same name."""

        def note(key: Key, item: Object | None) -> None:
            namespace, name = key
            self.scalers.note((namespace, f"{kind}/{name}"), item, key in self._scalers[kind].items)

        return note


def slim(obj: Object) -> Object:
    """Without what nobody here reads."""
    meta = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": meta}
