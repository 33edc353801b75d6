"""Which strike comes next: a pure function of the seed, its number and what is observed.

The actions take turns, in an order of the seed's that is another one in each round; an action that
is not possible in its turn is replaced by another. So even a short storm has most of all kinds.
A strike is offered only where it has a target that is the user's own and can take it. The last
member that holds the training state is never killed, nor stopped for so long that it is given up:
its loss ends a training by design, so that would prove nothing. `reckless` lifts that.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

KILL, STOP, PAUSE, CUT, SLOW, FILL, RESIZE = (
    "kill",
    "stop",
    "pause-coordinator",
    "cut",
    "slow",
    "fill-disk",
    "resize",
)
ACTIONS = (KILL, STOP, PAUSE, CUT, SLOW, FILL, RESIZE)
SECONDS = {  # how long a strike lasts: at least, at most
    STOP: (0.2, 6.0),
    PAUSE: (0.5, 8.0),
    CUT: (0.2, 4.0),
    SLOW: (1.0, 6.0),
    FILL: (1.0, 5.0),
}
TRAINS = ("stable", "preparing", "switching")  # phases in which steps are made
OVER = ("ending", "succeeded", "failed")
_COSTS_A_MEMBER = (KILL, STOP, CUT)


@dataclass(frozen=True)
class Member:
    name: str
    holds: bool  # the training state: it is in the world
    here: bool  # a process of this user, on this machine


@dataclass(frozen=True)
class Seen:
    """A training as it is at one moment."""

    phase: str
    step: int = 0
    members: tuple[Member, ...] = ()
    size: int = 0  # members, or workers of a job
    least: int = 0
    most: int = 0  # as many as there is room for now
    resets_left: int | None = None  # None: any number

    @property
    def holders(self) -> int:
        return sum(member.holds for member in self.members)


@dataclass(frozen=True)
class Strike:
    action: str
    target: str = ""  # a member
    peer: str = ""  # what is cut is between the two; "": between the target and the coordinator
    seconds: float = 0.0
    to: int = 0  # the size afterwards


def choose(
    seed: int, number: int, seen: Seen, actions: Sequence[str], *, reckless: bool = False
) -> Strike | None:
    """The strike of this number; None if nothing can be done at the moment."""
    offered = {action: strikes(action, seen, reckless=reckless) for action in actions}
    possible = [action for action in actions if offered[action]]
    if not possible:
        return None
    action = _turn(seed, number, actions)
    if action not in possible:
        action = possible[_draw(seed, number, "action", len(possible))]
    strike = offered[action][_draw(seed, number, "target", len(offered[action]))]
    if action not in SECONDS or strike.peer:
        return strike
    least, most = SECONDS[action]
    share = _draw(seed, number, "seconds", 1001) / 1000
    return replace(strike, seconds=round(least + share * (most - least), 2))


def _turn(seed: int, number: int, actions: Sequence[str]) -> str:
    turn, place = divmod(number, len(actions))
    return sorted(actions, key=lambda action: _draw(seed, turn, action, 1 << 32))[place]


def rest(seed: int, number: int, mean: float) -> float:
    """Seconds between a strike and the next."""
    return 2 * mean * _draw(seed, number, "rest", 1001) / 1000


def strikes(action: str, seen: Seen, *, reckless: bool = False) -> list[Strike]:
    """Those that are possible now, their duration apart."""
    if seen.phase not in TRAINS:
        return []
    if action == RESIZE:
        if seen.phase != "stable":
            return []
        sizes = range(seen.least, seen.most + 1)
        return [Strike(action, to=size) for size in sizes if size != seen.size]
    if action in (PAUSE, FILL):
        return [Strike(action)]
    able = [m for m in seen.members if _may(action, m, seen) or (reckless and m.here)]
    alone = [Strike(action, member.name) for member in able]
    return alone + _cuts_between(able) if action == CUT else alone


def _cuts_between(able: Sequence[Member]) -> list[Strike]:
    """Once each: five worlds in a row that complete no step end a training by design."""
    names = [member.name for member in able if member.holds]
    return [Strike(CUT, one, peer=other) for one, other in combinations(names, 2)]


def _may(action: str, member: Member, seen: Seen) -> bool:
    if not member.here:
        return False
    if action in _COSTS_A_MEMBER and seen.resets_left is not None and seen.resets_left < 1:
        return False  # one more loss ends the training, as its --reset-limit says
    if action not in (KILL, STOP) or not member.holds:
        return True
    # while a switch is under way, who has a rank may not have the state yet
    return seen.holders > 1 and seen.phase != "switching"


def _draw(seed: int, number: int, what: str, count: int) -> int:
    """One of `count` numbers from 0, always the same one for the same question."""
    digest = hashlib.sha256(f"{seed}/{number}/{what}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count
