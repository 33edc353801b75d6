"""The engine of a world of one: everything is done at once, by whoever asks.

A newcomer that has not taken its place yet is in such a world, too: whatever its script asks for
before its training function is answered without the others, who are busy training. What it was
told then does not matter: it receives their state before its first step.
"""

from midflight.compat.horovod.common.exceptions import InvalidRequest
from midflight.compat.horovod.engine import collectives
from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine.collectives import Work
from midflight.compat.horovod.engine.requests import Response
from midflight.compat.horovod.engine.sets import Sets
from midflight.compat.horovod.engine.timeline import Timeline
from midflight.runtime.group.process_group import Group

THRESHOLD = 128 << 20


class Alone:
    def __init__(self, group: Group, sets: Sets, timeline: Timeline) -> None:
        self.group = group
        self._sets = sets
        self._timeline = timeline
        self._numbers = max(sets.ranks) + 1

    def submit(self, work: Work) -> None:
        request = work.request
        self._timeline.negotiating(request)
        response = Response((request.name,), request.kind, request.process_set)
        with self._timeline.executing(response):
            self._execute(work)

    def _execute(self, work: Work) -> None:
        group, request = self.group, work.request
        if request.problem:
            work.fail(InvalidRequest(request.problem))
            return
        match request.kind:
            case words.ALLREDUCE:
                collectives.allreduce(group, [work], THRESHOLD)
            case words.ALLGATHER:
                rows = tuple((shape[0],) for shape in request.shapes)
                collectives.allgather(group, work, Response((), request.kind, rows=rows))
            case words.BROADCAST:
                collectives.broadcast(group, work, 0)
            case words.ALLTOALL:
                collectives.alltoall(group, work, [(sum(request.splits),)])
            case words.REDUCESCATTER:
                collectives.reducescatter(group, work)
            case words.JOIN:
                work.succeed(0)
            case words.ADD_SET:
                self._sets.add(self._numbers, [rank for rank in request.ranks if rank == 0])
                work.succeed(self._numbers)
                self._numbers += 1
            case words.REMOVE_SET:
                work.succeed(1)
            case _:
                work.succeed(None)

    def flush(self) -> None:
        """There is nobody to tell."""

    def retire(self) -> None:
        """There is nobody who might break."""

    def say_goodbye(self) -> None:
        """There is nobody to take leave of."""

    def close(self) -> None:
        """There is nothing to end."""
