"""Process sets: collectives among some of the ranks.

Sets that were given to `init` are made again in every new world, with those of their ranks that
there are; sets that were added later end with the world in which they were added, as in Horovod.
"""

from collections.abc import Iterable, Sequence

from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.engine.requests import GLOBAL_SET


class ProcessSet:
    """Some of the ranks; all of them if none are named."""

    def __init__(self, ranks_or_comm: Sequence[int] | None = None) -> None:
        self.process_set_id: int | None = None
        self.ranks: list[int] | None = None
        if ranks_or_comm is not None:
            if not isinstance(ranks_or_comm, Iterable):
                raise ValueError("a process set is made from a list of ranks; there is no MPI here")
            self.ranks = sorted({int(rank) for rank in ranks_or_comm})

    def _present(self) -> tuple[int, ...]:
        if self.process_set_id is None:
            raise ValueError("the process set has not been added yet; use hvd.add_process_set()")
        return PROCESS.sets.ranks.get(self.process_set_id, ())

    def included(self) -> bool:
        return PROCESS.standing.rank in self._present()

    def size(self) -> int:
        return len(self._present())

    def rank(self) -> int:
        """This process's rank within the set; -1 if it is not in it."""
        present = self._present()
        own = PROCESS.standing.rank
        return present.index(own) if own in present else -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSet) and self.ranks == other.ranks

    def __hash__(self) -> int:
        return hash(tuple(self.ranks or ()))

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _Global(ProcessSet):
    def __init__(self) -> None:
        super().__init__()
        self.process_set_id = GLOBAL_SET

    def size(self) -> int:
        return PROCESS.standing.size

    def rank(self) -> int:
        return PROCESS.standing.rank

    def included(self) -> bool:
        return True


global_process_set = _Global()
_given_to_init: list[ProcessSet] = []
_added: list[ProcessSet] = []


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Every rank calls this, members of the set or not. Returns the set."""
    wanted = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    if wanted.process_set_id is not None:
        raise ValueError(f"the process set has been added already: {wanted}")
    ranks = tuple(wanted.ranks or range(PROCESS.standing.size))
    if not ranks or ranks[0] < 0 or ranks[-1] >= PROCESS.standing.size:
        raise ValueError(f"wanted ranks from 0 to {PROCESS.standing.size - 1}, got {list(ranks)}")
    wanted.process_set_id = PROCESS.add_set(ranks)
    wanted.ranks = list(ranks)
    _added.append(wanted)
    return wanted


def remove_process_set(process_set: ProcessSet) -> bool:
    """Every rank calls this. False: there was no such set."""
    if process_set.process_set_id in (None, GLOBAL_SET) or process_set.ranks is None:
        return False
    removed = PROCESS.remove_set(tuple(process_set.ranks))
    process_set.process_set_id = None
    if process_set in _added:
        _added.remove(process_set)
    return removed


def make(process_sets: Sequence[ProcessSet | Sequence[int]]) -> None:
    """At `init`."""
    _given_to_init[:] = [p if isinstance(p, ProcessSet) else ProcessSet(p) for p in process_sets]
    renew()


def renew() -> None:
    """In a new world: what was added before is gone, what was given to `init` is made again."""
    for process_set in _added:
        process_set.process_set_id = None
    _added.clear()
    for process_set in _given_to_init:
        wanted = process_set.ranks or []
        ranks = tuple(rank for rank in wanted if rank < PROCESS.standing.size)
        if ranks and ranks != tuple(range(PROCESS.standing.size)):
            process_set.process_set_id = PROCESS.add_set(ranks)
        else:
            process_set.process_set_id = GLOBAL_SET if ranks else None


__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
