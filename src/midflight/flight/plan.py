"""The flight plan: what the records of a run amount to, for whoever draws or sums it up.

Decides when each member was in the world and why it left, what each change of the world was and
cost, and how fast training went in between. Records of a run that goes on make a plan that ends
with the last of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from midflight.flight.records import (
    Begun,
    Ended,
    Formed,
    Joined,
    Logged,
    Lost,
    Over,
    Paused,
    Progress,
    Record,
    Settled,
)
from midflight.protocol.pause import Pause

_CAUSES = {
    "start": "start",
    "failure": "failure",
    "restart": "restart",
    "request": "resize",
    "replace": "resize",
    "growth": "growth",
    "shrink": "resize",
    "notice": "preemption",
    "finish": "finish",
}
SHORTEST = 0.5  # seconds from which a rate is made


@dataclass(frozen=True)
class Band:
    """The time of one member in the world."""

    member: str
    host: str
    joined: float  # when it dialled in
    begin: float
    end: float
    reason: str = ""  # why it left; "": it is there, or was at the end


@dataclass(frozen=True)
class Change:
    """From one world to the next."""

    t: float
    generation: int
    step: int
    cause: str  # as a person calls it
    before: int
    after: int
    pause: Pause | None = None  # the longest of any member; None: nobody has told
    detail: str = ""

    @property
    def is_failure(self) -> bool:
        return self.cause in ("failure", "restart")


@dataclass(frozen=True)
class Rate:
    """How fast training went from one record to the next."""

    begin: float
    end: float
    steps: float  # a second
    samples: float


@dataclass(frozen=True)
class Plan:
    name: str = ""
    at: float | None = None  # when time 0 was, in seconds since 1970; None: not recorded
    begin: float = 0.0
    end: float = 0.0
    phase: str = ""  # how it ended; "": it goes on
    detail: str = ""
    first: Progress | None = None  # that was noted
    last: Progress | None = None
    changes: tuple[Change, ...] = ()  # the first is the start
    bands: tuple[Band, ...] = ()  # in the order of joining
    rates: tuple[Rate, ...] = ()
    logged: dict[str, tuple[tuple[float, float | None], ...]] = field(default_factory=dict)
    undone: tuple[Settled, ...] = ()  # requests that were not met


def plan(records: Sequence[Record]) -> Plan:
    """Of records in the order of their time."""
    if not records:
        return Plan()
    begun = next((r for r in records if isinstance(r, Begun)), None)
    over = next((r for r in records if isinstance(r, Over)), None)
    progress = [r for r in records if isinstance(r, Progress)]
    made = Plan(
        name=begun.name if begun is not None else "",
        at=begun.at if begun is not None else None,
        begin=records[0].t,
        end=over.t if over is not None else records[-1].t,
        first=progress[0] if progress else None,
        last=progress[-1] if progress else None,
        changes=_changes(records),
        rates=_rates(_apart(progress)),
        logged=_series(records),
        undone=tuple(r for r in records if isinstance(r, Settled) and not r.ok),
    )
    if over is not None:
        made = replace(made, phase=over.phase, detail=over.detail)
    return replace(made, bands=_bands(records, made.end))


def _apart(found: list[Progress]) -> list[Progress]:
    """A heartbeat tells of steps some time later: over a short time that would be a wild rate."""
    kept: list[Progress] = []
    for each in found:
        if not kept or (each.step > kept[-1].step and each.t >= kept[-1].t + SHORTEST):
            kept.append(each)
    if len(kept) == 1 and found[-1].step > kept[0].step and found[-1].t > kept[0].t:
        kept.append(found[-1])  # a short run has one rate all the same
    return kept


def _rates(progress: Sequence[Progress]) -> tuple[Rate, ...]:
    return tuple(
        Rate(
            begin=a.t,
            end=b.t,
            steps=(b.step - a.step) / (b.t - a.t),
            samples=max(0, b.samples - a.samples) / (b.t - a.t),
        )
        for a, b in pairwise(progress)
    )


def _series(records: Sequence[Record]) -> dict[str, tuple[tuple[float, float | None], ...]]:
    series: dict[str, list[tuple[float, float | None]]] = {}
    for record in records:
        if isinstance(record, Logged):
            for name, value in record.values.items():
                series.setdefault(name, []).append((record.t, value))
    return {name: tuple(points) for name, points in series.items()}


def _changes(records: Sequence[Record]) -> tuple[Change, ...]:
    pauses: dict[int, Pause] = {}
    for record in records:
        if isinstance(record, Paused):
            longest = pauses.get(record.generation)
            if longest is None or record.pause.seconds > longest.seconds:
                pauses[record.generation] = record.pause
    made: list[Change] = []
    size, reasons = 0, ""
    for record in records:
        match record:
            case Lost(reason=reason):
                reasons = reason
            case Formed(t, generation, step, cause, members):
                made.append(
                    Change(
                        t=t,
                        generation=generation,
                        step=step,
                        cause=_CAUSES.get(cause, cause),
                        before=size,
                        after=len(members),
                        pause=pauses.get(generation),
                        detail=reasons if cause == "failure" else "",
                    )
                )
                size, reasons = len(members), ""
            case _:
                pass
    return tuple(made)


def _bands(records: Sequence[Record], end: float) -> tuple[Band, ...]:
    bands: list[Band] = []
    here: dict[str, int] = {}  # in the world: which of the bands is theirs
    joined: dict[str, float] = {}
    ends = {r.member: r.reason for r in records if isinstance(r, Ended)}

    def close(member: str, t: float, reason: str) -> None:
        index = here.pop(member)
        bands[index] = replace(bands[index], end=t, reason=reason)

    for record in records:
        match record:
            case Joined(t, member, _):
                joined.setdefault(member, t)
            case Lost(t, member, _, reason) if member in here:
                close(member, t, f"lost: {ends.get(member) or reason.removeprefix(f'{member}: ')}")
            case Formed(t, _, _, cause, members):
                names = {place.member for place in members}
                for name in [name for name in here if name not in names]:
                    close(name, t, f"left: {_CAUSES.get(cause, cause)}")
                for place in members:
                    if place.member not in here:
                        here[place.member] = len(bands)
                        began = joined.get(place.member, t)
                        bands.append(Band(place.member, place.host, began, t, end))
            case _:
                pass
    return tuple(bands)
