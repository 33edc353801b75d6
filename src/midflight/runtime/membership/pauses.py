"""How long a change of the world holds up the steps of this member, and in which phase.

Decides from moments on this member's clock; it reads none. Several losses in a row are one pause:
it began with the first of them and ends with the next completed step.
"""

from dataclasses import dataclass

from midflight.protocol.pause import Pause

SMOOTHING = 0.1  # how much one step counts in the duration of a usual one


@dataclass
class Pauses:
    usual: float = 0.0  # seconds from step to step, lately
    _stepped: float | None = None  # when the last step was complete; None: there was none
    _noticed: float | None = None  # when it knew that a change is due; None: none is
    _ordered: float = 0.0
    _connected: float = 0.0
    _agreed: float | None = None  # None: it is in no new world
    _planned: bool = False

    def noticed(self, now: float) -> None:
        """A collective broke."""
        if self._noticed is None:
            self._noticed = now

    def ordered(self, now: float, *, planned: bool) -> None:
        """It was told of the next world. A planned change holds nothing up before its boundary."""
        if self._noticed is None:
            self._noticed = now
            self._stepped = now if planned and self._stepped is not None else self._stepped
        self._planned = planned
        self._ordered = now

    def connected(self, now: float) -> None:
        self._connected = now

    def agreed(self, now: float) -> None:
        """It is in the next world, with the state that all have."""
        self._agreed = now

    def stepped(self, now: float) -> tuple[bool, Pause] | None:
        """A step is complete. If it is the first in a world: whether the change was planned, and
        what it cost, for a member that had done a step before."""
        before, agreed, self._stepped = self._stepped, self._agreed, now
        noticed, self._noticed, self._agreed = self._noticed, None, None
        if before is None:
            return None
        if agreed is None or noticed is None:
            gap = now - before
            self.usual += (gap - self.usual) * (SMOOTHING if self.usual else 1.0)
            return None
        return self._planned, Pause(
            detect=noticed - before,
            agree=self._ordered - noticed,
            connect=self._connected - self._ordered,
            state=agreed - self._connected,
            first_step=now - agreed,
            usual=self.usual,
        )
