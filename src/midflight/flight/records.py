"""The lines of `flight.jsonl`: what happened to a run, and when.

Each line is a JSON object: its `kind`, `t` (seconds since the run began, on a clock that is never
set back) and the fields of one of the classes below. The coordinator is the only writer. Whoever
reads passes over lines that it does not understand: a line may be cut off, or a later release's.
"""

import json
from collections.abc import Iterable
from typing import get_args

from midflight.errors import ProtocolError
from midflight.protocol import codec
from midflight.protocol.message import message
from midflight.protocol.pause import Pause


@message
class Begun:
    t: float
    name: str
    at: float  # wall clock, in seconds since 1970
    np: int
    min_np: int
    max_np: int


@message
class Resumed:
    """Another coordinator has taken the run up; what happened in between was not seen."""

    t: float


@message
class Joined:
    """A member has dialled in for the first time; it is in no world yet."""

    t: float
    member: str
    host: str


@message
class Lost:
    """A member is gone that nobody had let go."""

    t: float
    member: str
    host: str
    reason: str


@message
class Ended:
    """How the process of a lost member ended, once its agent tells."""

    t: float
    member: str
    reason: str


@message
class Place:
    member: str
    host: str


@message
class Formed:
    """This world is the valid one from now on. Who was in the one before and is not here has left.

    `cause`: start, failure, restart, or the origin of a planned change (request, replace, growth,
    shrink, notice, finish).
    """

    t: float
    generation: int
    step: int
    cause: str
    members: tuple[Place, ...]  # in rank order


@message
class Asked:
    """Somebody wants another size. `wish`: "5 members", "2 more", "without m3"."""

    t: float
    id: str
    wish: str


@message
class Settled:
    """How a request ended."""

    t: float
    id: str
    ok: bool
    detail: str


@message
class Paused:
    """What one change cost one member that was there before and after."""

    t: float
    member: str
    generation: int  # of the world that came
    step: int
    planned: bool
    pause: Pause


@message
class Progress:
    """So many steps, and samples of those steps, had been completed in all."""

    t: float
    step: int
    samples: int  # 0: the script does not say


@message
class Logged:
    """What rank 0 passed to `job.log`; None: not a finite number."""

    t: float
    step: int
    epoch: int
    values: dict[str, float | None]


@message
class Over:
    """The run has ended."""

    t: float
    step: int
    phase: str  # succeeded | failed
    detail: str


Record = (
    Begun
    | Resumed
    | Joined
    | Lost
    | Ended
    | Formed
    | Asked
    | Settled
    | Paused
    | Progress
    | Logged
    | Over
)
LONGEST = 1e10  # seconds, three centuries; a later time is damage
LARGEST = 1 << 62  # of whole numbers
_KINDS: dict[str, type[Record]] = {kind.__name__.lower(): kind for kind in get_args(Record)}


def as_line(record: Record) -> str:
    """Without the newline. ASCII, so that no text in it can break a line."""
    fields = codec.encode(record)
    fields["t"] = round(fields["t"], 6)
    return json.dumps({"kind": type(record).__name__.lower(), **fields})


def parse(lines: Iterable[str]) -> list[Record]:
    """The records, in the order of their time."""
    found = [record for line in lines if (record := _parsed(line)) is not None]
    return sorted(found, key=lambda record: record.t)


def _parsed(line: str) -> Record | None:
    try:
        fields = codec.loads(line.encode())
        kind = _KINDS.get(fields.pop("kind", "")) if isinstance(fields, dict) else None
        if kind is None or any(abs(v) > LARGEST for v in fields.values() if isinstance(v, int)):
            return None
        record = codec.decode(kind, fields)
        return record if 0 <= record.t <= LONGEST else None
    except (ProtocolError, TypeError, ValueError):
        return None
