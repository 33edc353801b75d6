"""Frames that are changed on the way: somebody repeats, swaps, leaves out or damages one.

TCP does none of this by itself. The MAC of a frame covers its number and its content, so whoever
reads one that is not the next ends the connection, and the two dial again. The first frames of a
connection have no MAC yet, and are left as they are: whoever can change those can keep anybody out.
"""

import random
from typing import TYPE_CHECKING

from tests.simulation.group import LOOK_SECONDS
from tests.simulation.network import Endpoint
from tests.simulation.sequences import happens

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.faults import Fault, Strikes

CHANGE_WITHIN = 10.0  # seconds until the next frames are sent
END_WITHIN = 60.0  # in any case; sooner if nothing else keeps the two from hearing each other


class Frames:
    """Changes a frame of some connection, and sees that the connection ends."""

    def __init__(self, strikes: "Strikes", cluster: "Cluster") -> None:
        self._strikes = strikes
        self._cluster = cluster

    async def repeat_frame(self, fault: "Fault") -> None:
        await self._change(fault, Repeated())

    async def swap_frames(self, fault: "Fault") -> None:
        await self._change(fault, Swapped())

    async def drop_frame(self, fault: "Fault") -> None:
        await self._change(fault, Dropped())

    async def flip_bit(self, fault: "Fault") -> None:
        await self._change(fault, Flipped(fault.victim))

    async def _change(self, fault: "Fault", change: "Change") -> None:
        network = self._cluster.network
        open_ends = [e for e in network.endpoints if e.is_protected and e.change is None]
        if not open_ends:
            return
        end = open_ends[fault.victim % len(open_ends)]
        end.change = change.apply
        both = end.process, end.peer.process
        names = [process.name for process in both]
        if not await happens(lambda: change.done, CHANGE_WITHIN, LOOK_SECONDS):
            end.change = None
            return
        self._strikes.say(f"{change.what} from {' to '.join(names)}")
        self._cluster.disturb(*names)
        self._cluster.silence(*names)
        places = {*names, *(process.host for process in both)}

        def is_known() -> bool:
            return self._has_ended(end) or self._cluster.is_calm(*places)

        await happens(is_known, END_WITHIN, LOOK_SECONDS)
        if not self._has_ended(end):
            self._cluster.witness.find(
                f"the connection between {' and '.join(names)} goes on after {change.what}"
            )

    def _has_ended(self, end: Endpoint) -> bool:
        """Or nothing will ever arrive on it again."""
        lost = self._cluster.network.lost
        return (
            end.peer.is_closing()
            or end.silent
            or not end.peer.process.alive
            or end.process.host in lost
        )


class Change:
    """What somebody does to one of the next frames."""

    what: str
    done = False

    def apply(self, frame: bytes) -> list[bytes]:
        """What arrives when this is sent."""
        raise NotImplementedError


class Repeated(Change):
    what = "a frame that was repeated"

    def apply(self, frame: bytes) -> list[bytes]:
        if self.done:
            return [frame]
        self.done = True
        return [frame, frame]


class Swapped(Change):
    what = "two frames that were swapped"

    def __init__(self) -> None:
        self._first: bytes | None = None

    def apply(self, frame: bytes) -> list[bytes]:
        if self.done:
            return [frame]
        if self._first is None:
            self._first = frame
            return []
        self.done = True
        return [frame, self._first]


class Dropped(Change):
    what = "a frame that was left out"

    def apply(self, frame: bytes) -> list[bytes]:
        if self.done:
            return [frame]
        self.done = True
        return []


class Flipped(Change):
    what = "a bit that was flipped"

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def apply(self, frame: bytes) -> list[bytes]:
        if self.done:
            return [frame]
        self.done = True
        # The length is a part of each frame, and as likely to be hit as all the rest.
        at = self._rng.choice((self._rng.randrange(4), self._rng.randrange(len(frame))))
        bit = 1 << self._rng.randrange(8)
        return [frame[:at] + bytes([frame[at] ^ bit]) + frame[at + 1 :]]
