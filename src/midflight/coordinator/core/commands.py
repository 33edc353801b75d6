"""What the coordinator wants done, in the imperative. The shell carries it out, in order.

`Tell` with `durable` set waits until the state is in the store: a world that nobody could look up
must not be announced. So does a `Stop` (all are to be started again, and their ends are no
failures), and so do `Start` (a name must never be given out twice) and `Answer`. What members are
told stays in order: nothing overtakes a `Tell` that waits.
"""

from dataclasses import dataclass

from midflight.protocol.world import World


@dataclass(frozen=True)
class Tell:
    """Send a message to members."""

    members: tuple[str, ...]
    message: object
    durable: bool = False


@dataclass(frozen=True)
class Start:
    """Start training processes. `world` gives scripts without Midflight their ranks."""

    members: tuple[str, ...]
    world: World | None
    restarts: int


@dataclass(frozen=True)
class Stop:
    member: str
    host: str
    grace: float
    durable: bool = False


@dataclass(frozen=True)
class Probe:
    member: str
    host: str


@dataclass(frozen=True)
class Answer:
    """Tell the client behind a request how it ended."""

    ticket: int
    ok: bool
    detail: str


@dataclass(frozen=True)
class Inform:
    """Tell the client behind a request how far it is."""

    ticket: int
    line: str


@dataclass(frozen=True)
class Say:
    """One line for the person who watches the job."""

    line: str
    level: str = "info"  # info | warning | error | debug


@dataclass(frozen=True)
class End:
    """Everything is over: take the agents down and end with this code."""

    code: int
    reason: str


Command = Tell | Start | Stop | Probe | Answer | Inform | Say | End
