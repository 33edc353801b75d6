"""A report about a run or a job: one HTML file that can be sent to somebody.

Decides what it says: when it ran and how it ended, the flight plan, where the time went, each
change with the phases of its pause, each member, and what else was recorded. Times in tables count
from the beginning of the run, as in the picture.
"""

from collections.abc import Sequence

from midflight.flight import page, summary, svg
from midflight.flight.amounts import clock, moment, seconds, values
from midflight.flight.page import Column
from midflight.flight.plan import Change, Plan, plan
from midflight.flight.records import (
    Asked,
    Begun,
    Ended,
    Joined,
    Lost,
    Over,
    Record,
    Resumed,
    Settled,
)
from midflight.protocol.pause import Pause
from midflight.quantities import counted

_TIME = Column("time", is_number=True)
_SINCE = "Times count from the beginning of the run."
_PHASES = tuple(Pause(0.0, 0.0, 0.0, 0.0, 0.0, 0.0).phases)
_PAUSES = (
    "A pause is the time from step to step beyond a usual step, for the member that waited longest."
    " Detect: until it knew that the world changes. Agree: until it was told of the next one."
    " Connect: until the members were connected. State: until all held the same state."
    " First step: what that step took beyond a usual one."
)


def render(records: Sequence[Record]) -> str:
    """Of records in the order of their time."""
    found = plan(records)
    sections = [
        page.section("summary", "Summary", page.facts(_facts(found))),
        _wide("plan", "Flight plan", svg.draw(found)),
        _wide("time", "Where the time went", _spent(found)),
        _wide("changes", "Changes", _changes(found.changes[1:]), page.paragraph(_PAUSES)),
        _wide("members", "Members", _members(found, records)),
        _wide("events", "Events", _events(records)),
    ]
    name = found.name or "A run"
    head = [page.heading(name), page.paragraph(_when(found))]
    body = ["<header>", *head, "</header>", "<main>", *sections, "</main>"]
    return page.page(f"{name}: report", body, svg.STYLE)


def _wide(name: str, title: str, content: str, *before: str) -> str:
    return page.section(name, title, *before, page.scrolling(name, content))


def _when(plan: Plan) -> str:
    """By the calendar, where the record has it."""
    began = None if plan.at is None else moment(plan.at + plan.begin)
    ended = None if plan.at is None else moment(plan.at + plan.end)
    took = clock(plan.end - plan.begin)
    if began is None or ended is None:
        return f"When it began is not recorded. It took {took}, as far as the record goes."
    day, last = (f"{each:%Y-%m-%d %H:%M:%S}" for each in (began, ended))
    if plan.phase:
        return f"It ran from {day} to {last} UTC ({took})."
    return f"It began on {day} UTC; the record ends at {last} UTC ({took})."


def _facts(plan: Plan) -> list[tuple[str, str]]:
    found = [("state", _state(plan))]
    if plan.last is not None:
        went = summary.spent(plan)
        found.append(("done", summary.done(plan, went)))
        found.append(("goodput", summary.goodput(went)))
    if plan.changes:
        found.append(("members", _sizes(plan)))
    if causes := summary.by_cause(plan.changes[1:]):
        found.append(("changes", "; ".join(causes)))
    if plan.undone:
        found.append(("requests", f"{counted(len(plan.undone), 'request')} not met"))
    if plan.logged:
        last = {name: points[-1][1] for name, points in plan.logged.items()}
        found.append(("last values", values(last)))
    return found


def _state(plan: Plan) -> str:
    detail = f": {plan.detail}" if plan.detail else ""
    return f"{plan.phase}{detail}" if plan.phase else "no end is recorded"


def _sizes(plan: Plan) -> str:
    sizes = [change.after for change in plan.changes]
    names = {band.member for band in plan.bands}
    hosts = {band.host for band in plan.bands}
    return (
        f"{sizes[0]} at first, {max(sizes)} at most, {sizes[-1]} at last; "
        f"{len(names)} in all, on {counted(len(hosts), 'host')}"
    )


def _spent(plan: Plan) -> str:
    went = summary.spent(plan)
    if plan.last is None or went.total <= 0:
        return ""
    parts = [
        ("steps", went.goodput * went.total, "steps that count: the goodput"),
        ("start", went.start, "until the first world"),
        ("pauses", went.pauses, "what the changes cost"),
        ("end", went.end, "after the last step that was recorded"),
    ]
    columns = [Column("part"), Column("took", True), Column("share", True), Column("what it is")]
    rows = [
        (name, seconds(took), f"{100 * took / went.total:.1f} %", what)
        for name, took, what in parts
    ]
    return page.table(f"{clock(went.total)} in all.", columns, rows)


def _changes(changes: Sequence[Change]) -> str:
    phases = [Column(name, is_number=True) for name in _PHASES]
    columns = [_TIME, Column("cause"), Column("members"), Column("step", is_number=True)]
    columns += [Column("pause", is_number=True), *phases, Column("detail")]
    rows = [
        (
            clock(change.t),
            change.cause,
            f"{change.before} to {change.after}",
            f"{change.step:,}",
            *_pause(change.pause),
            change.detail,
        )
        for change in changes
    ]
    return page.table(_SINCE, columns, rows)


def _pause(pause: Pause | None) -> tuple[str, ...]:
    if pause is None:
        return ("not recorded", *("" for _ in _PHASES))
    return (seconds(pause.seconds), *map(seconds, pause.phases.values()))


def _members(plan: Plan, records: Sequence[Record]) -> str:
    columns = [Column("member"), Column("host")]
    columns += [Column(name, is_number=True) for name in ("joined", "entered", "left")]
    columns.append(Column("reason"))
    rows = []
    for band in plan.bands:
        reason = band.reason or ("the run ended" if plan.phase else "there when the record ends")
        times = (clock(band.joined), clock(band.begin), clock(band.end) if band.reason else "")
        rows.append((band.member, band.host, *times, reason))
    entered = {band.member for band in plan.bands}
    for record in records:
        if isinstance(record, Joined) and record.member not in entered:
            never = "never entered the world"
            rows.append((record.member, record.host, clock(record.t), "", "", never))
    caption = f"{_SINCE} A member joins when it dials in, and enters when its first world begins."
    return page.table(caption, columns, rows)


def _events(records: Sequence[Record]) -> str:
    rows = [event for record in records if (event := _event(record)) is not None]
    columns = [_TIME, Column("event"), Column("who"), Column("detail")]
    return page.table(_SINCE, columns, rows)


def _event(record: Record) -> tuple[str, str, str, str] | None:
    """None for what another part of the report shows."""
    match record:
        case Begun(t, _, _, size, least, most):
            event = (
                "run began",
                "",
                f"{counted(size, 'member')} wanted, {least} to {most} allowed",
            )
        case Resumed(t):
            event = ("run resumed", "", "another coordinator took it up")
        case Lost(t, member, host, reason):
            event = ("member lost", f"{member} on {host}", reason)
        case Ended(t, member, reason):
            event = ("process ended", member, reason)
        case Asked(t, id, wish):
            event = ("size requested", f"request {id}", wish)
        case Settled(t, id, ok, detail):
            event = ("request met" if ok else "request not met", f"request {id}", detail)
        case Over(t, _, phase, detail):
            event = ("run ended", "", f"{phase}: {detail}" if detail else phase)
        case _:
            return None
    return (clock(t), *event)
