"""Rank 0's count of who has asked for what: a collective goes ahead when all members have asked.

Members may ask in any order, and wait for some answers before they ask for more; what all have
asked for is told to all in one order. Allreduces that are ready together are told as one response;
whoever carries them out decides how much goes into one transfer. A member that has joined counts
as having asked for everything. Pure: no clock but the one it is given.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine.requests import GLOBAL_SET, Request, Response, disagreement

_WITH_JOINED = (words.ALLREDUCE, words.BARRIER)


@dataclass
class _Asked:
    by: dict[int, Request]
    since: float
    warned: bool = False


@dataclass
class Tally:
    size: int
    sets: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _open: dict[tuple[int, str], _Asked] = field(default_factory=dict)
    _joined: list[int] = field(default_factory=list)  # in the order in which they came
    _next_set: int = 1

    def __post_init__(self) -> None:
        self.sets.setdefault(GLOBAL_SET, tuple(range(self.size)))
        self._next_set = max(self.sets) + 1

    def add(self, rank: int, requests: Iterable[Request], now: float) -> None:
        for request in requests:
            if request.kind == words.JOIN:
                self._joined.append(rank)
                continue
            if request.kind == words.SHUTDOWN:
                continue
            key = (request.process_set, request.name)
            self._open.setdefault(key, _Asked({}, now)).by[rank] = request

    def ready(self) -> list[Response]:
        """What all members have asked for, in the order in which it was first asked for."""
        found: list[Response] = []
        for key, asked in tuple(self._open.items()):
            members = self.sets.get(key[0], ())
            missing = set(members) - asked.by.keys() - set(self._joined)
            if missing or not asked.by:
                continue
            del self._open[key]
            found.append(self._response(members, asked.by))
        if self._joined and len(set(self._joined)) == self.size:
            found.append(Response((), words.JOIN, last=self._joined[-1]))
            self._joined = []
        return self._fused(found)

    def _response(self, members: tuple[int, ...], by: dict[int, Request]) -> Response:
        first = next(iter(by.values()))
        base = Response((first.name,), first.kind, first.process_set)
        problem = disagreement(by)
        absent = len(by) < len(members)
        if not problem and absent and first.kind not in _WITH_JOINED:
            problem = f"{first.kind} is not supported while a rank has joined ('{first.name}')."
        if not problem and first.kind == words.BROADCAST and not 0 <= first.root < self.size:
            problem = f"Invalid root rank {first.root} of '{first.name}', there are {self.size}."
        if problem:
            return replace(base, error=problem)
        in_order = [by[rank] for rank in members if rank in by]
        if first.kind == words.ALLGATHER:
            columns = zip(*(request.shapes for request in in_order), strict=True)
            rows = tuple(tuple(shape[0] for shape in column) for column in columns)
            return replace(base, rows=rows)
        if first.kind == words.ALLTOALL:
            return replace(base, splits=tuple(request.splits for request in in_order))
        if first.kind in (words.ADD_SET, words.REMOVE_SET):
            return self._change_sets(base, first)
        return replace(base, template=(first,) if absent else ())

    def _change_sets(self, base: Response, request: Request) -> Response:
        if request.kind == words.REMOVE_SET:
            number = next((n for n, ranks in self.sets.items() if n and ranks == request.ranks), 0)
            if number:
                del self.sets[number]
            return replace(base, number=number)
        number = next((n for n, ranks in self.sets.items() if ranks == request.ranks), -1)
        if number >= 0:
            return replace(base, error="A process set with the same ranks has been added already.")
        number, self._next_set = self._next_set, self._next_set + 1
        self.sets[number] = request.ranks
        return replace(base, number=number, rows=(request.ranks,))

    def _fused(self, responses: list[Response]) -> list[Response]:
        """Neighbouring allreduces become one; who executes them sorts them by kind of tensor."""
        fused: list[Response] = []
        for response in responses:
            last = fused[-1] if fused else None
            if last is not None and _go_together(last, response):
                fused[-1] = replace(
                    last,
                    names=last.names + response.names,
                    template=last.template + response.template,
                )
            else:
                fused.append(response)
        return fused

    def stalled(self, now: float, seconds: float) -> Mapping[str, list[int]]:
        """Names that some have been waiting for so long, said once, and the ranks that lack."""
        found = {}
        for (number, name), asked in self._open.items():
            if now - asked.since >= seconds and not asked.warned:
                asked.warned = True
                members = self.sets.get(number, ())
                found[name] = [r for r in members if r not in asked.by and r not in self._joined]
        return found

    def oldest(self, now: float) -> float:
        """How long the one that has waited longest has waited."""
        return max((now - asked.since for asked in self._open.values()), default=0.0)


def _go_together(one: Response, other: Response) -> bool:
    same = one.kind == other.kind == words.ALLREDUCE and one.process_set == other.process_set
    return same and not one.error and not other.error and bool(one.template) == bool(other.template)
