"""What a decision adds to the record of the run: pure, from the states before and after it.

Written down is what a person asks about afterwards: who came, who was lost and why, which worlds
there were and what each was formed for, what was requested and what became of it, how it ended.
"""

from midflight.coordinator.core import events
from midflight.coordinator.core.departures import describe_exit
from midflight.coordinator.core.state import Mode, Outcome, Phase, Request, Stage, State
from midflight.flight.records import (
    Asked,
    Ended,
    Formed,
    Joined,
    Lost,
    Over,
    Place,
    Record,
    Settled,
)
from midflight.quantities import counted

_ENDS = (Phase.SUCCEEDED, Phase.FAILED)


def records(before: State, after: State, event: events.Event, t: float) -> list[Record]:
    """`t`: seconds since the run began."""
    if before is after:
        return []
    return [
        *_arrivals(before, event, t),
        *_losses(before, after, t),
        *_ends(before, event, t),
        *_requests(before, after, event, t),
        *_worlds(before, after, t),
        *_end_of_run(before, after, t),
    ]


def _arrivals(before: State, event: events.Event, t: float) -> list[Record]:
    if not isinstance(event, events.Joined):
        return []
    member = before.members.get(event.member)
    return [] if member is None or member.joined else [Joined(t, member.name, member.host)]


def _losses(before: State, after: State, t: float) -> list[Record]:
    if len(after.members) >= len(before.members) and after.serial == before.serial:
        return []  # a name is never given out twice: nobody is gone
    gone = [m for name, m in before.members.items() if name not in after.members]
    reason = after.detail or "its process is gone"
    return [
        Lost(t, member.name, member.host, reason)
        for member in gone
        if member.stage is Stage.ACTIVE and not member.finished
    ]


def _ends(before: State, event: events.Event, t: float) -> list[Record]:
    if not isinstance(event, events.Exited) or event.member not in before.vanished:
        return []
    return [Ended(t, event.member, describe_exit(event.code))]


def _requests(before: State, after: State, event: events.Event, t: float) -> list[Record]:
    found: list[Record] = []
    if isinstance(event, events.Asked) and event.request.id:
        found.append(Asked(t, event.request.id, _wish(event.request)))
    if after.outcomes is not before.outcomes:
        known = set(before.outcomes)
        found += [_settled(t, each) for each in after.outcomes if each not in known]
    return found


def _settled(t: float, outcome: Outcome) -> Settled:
    return Settled(t, outcome.id, outcome.ok, outcome.detail)


def _wish(request: Request) -> str:
    if request.to is not None:
        return counted(request.to, "member")
    if request.names or request.hosts:
        return f"without {', '.join(request.names or request.hosts)}"
    return f"{request.add} more" if request.add else f"{request.remove} fewer"


def _worlds(before: State, after: State, t: float) -> list[Record]:
    world = after.world
    if world is None or world is before.world:
        return []
    if before.world is not None and before.world.generation == world.generation:
        return []
    members = tuple(Place(each.name, each.host) for each in world.members)
    return [Formed(t, world.generation, after.best_step, _cause(before, after), members)]


def _cause(before: State, after: State) -> str:
    change = before.change
    if before.world is None:
        return "start"
    if after.mode is Mode.RESTART:
        return "restart"
    if change is not None and change.world == after.world:
        return change.request.origin
    return "failure"


def _end_of_run(before: State, after: State, t: float) -> list[Record]:
    if after.phase not in _ENDS or before.phase in _ENDS:
        return []
    return [Over(t, after.best_step, after.phase.value, after.detail)]
