"""ElasticState and ElasticContext: a loop that counts its progress and follows the cluster.

state = ElasticState(max_progress=1000)
while not state.stopped():
    with ElasticContext(state) as should_sync:
        if should_sync:
            ...  # broadcast what the script itself holds
        ...  # one step
"""

from types import TracebackType

from midflight.compat.kungfu.peer import peer
from midflight.compat.kungfu.python import all_reduce_int_max, change_cluster, init_progress


class ElasticState:
    def __init__(self, max_progress: int | None = None, full_reload: bool = False) -> None:
        """`full_reload` is taken and has no use: workers stay, nothing has to be loaded again."""
        self._progress = init_progress()
        self._max_progress = max_progress
        self._synced = False
        self._stop_reason: str | None = None

    @property
    def progress(self) -> int:
        return self._progress

    def begin(self) -> bool:
        """Whether this is the first step in this cluster: then all are at the same progress now."""
        if self._synced:
            return False
        self._progress = all_reduce_int_max(self._progress)
        self._synced = True
        return True

    def end(self, delta_progress: int = 1) -> None:
        """A step is done: count it, and go over to another cluster if one is due."""
        self._progress += 0 if peer().void else delta_progress
        if self._max_progress and self._progress >= self._max_progress:
            peer().progress = self._progress
            self._stop_reason = "finished"
            return
        changed, detached = change_cluster(self._progress)
        if detached:
            self._stop_reason = "detached"
        elif changed:
            self._synced = False

    def stopped(self) -> bool:
        return self._stop_reason is not None

    def stop_reason(self) -> str | None:
        """`finished`, `detached`, or None."""
        return self._stop_reason


class ElasticContext:
    def __init__(self, elastic_state: ElasticState, delta_progress: int = 1) -> None:
        self._state = elastic_state
        self._delta = delta_progress

    def __enter__(self) -> bool:
        return self._state.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._state.end(self._delta)
