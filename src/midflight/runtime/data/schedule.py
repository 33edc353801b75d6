"""Which seat this member has from which step on, as far as is known now.

A planned switch is foreseen: batches are loaded ahead for the seat they will be used with. A
failure is not: the seat is replaced, and whatever was issued in the era before is stale. Written
by the session's threads, read by the sampler and the feed in the training thread. It neither knows
nor cares whether a step was reached; the session makes a switch happen at the feed's boundary.
"""

import threading
from dataclasses import dataclass

from midflight.runtime.data.plan import Seat

ALWAYS = -1  # the step from which the present seat is valid: before any other


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a batch was issued for. It is stale once `Schedule.ticket` says another for its step."""

    era: int
    seat: Seat


class Schedule:
    """The present seat, and the foreseen ones in the order of their steps."""

    def __init__(self, seat: Seat) -> None:
        self._lock = threading.Lock()  # for writers; readers see one list or the next, both whole
        self._entries = [(ALWAYS, Ticket(0, seat))]  # steps and generations both grow along it
        self.version = 0  # how often anything was changed

    @property
    def era(self) -> int:
        """How often the seat was replaced."""
        return self._entries[0][1].era

    def at(self, step: int) -> Seat:
        """The seat of this member in that step."""
        return self.ticket(step).seat

    def ticket(self, step: int) -> Ticket:
        """Era and seat of that step, read together."""
        for start, ticket in reversed(self._entries):
            if start <= step:
                return ticket
        raise ValueError(f"there is no step {step}")

    def foresee(self, step: int, seat: Seat) -> bool:
        """From that step on another seat. False: ignored, a newer one is known already.

        What was foreseen of the same generation, or from the same step or a later one, gives way.
        Within a generation a seat is newer if more members share the samples.
        """
        with self._lock:
            present, *foreseen = self._entries
            newest = self._entries[-1][1].seat
            if seat.order <= present[1].seat.order or seat.order < newest.order:
                return False
            earlier = [
                (start, known)
                for start, known in foreseen
                if start < step and known.seat.generation < seat.generation
            ]
            self._entries = [present, *earlier, (step, Ticket(present[1].era, seat))]
            self.version += 1
            return True

    def withdraw(self, generation: int) -> bool:
        """Forget a foreseen switch that will not happen. False: there was none."""
        with self._lock:
            present, *foreseen = self._entries
            kept = [entry for entry in foreseen if entry[1].seat.generation != generation]
            self._entries = [present, *kept]
            self.version += 1
            return len(kept) < len(foreseen)

    def replace(self, seat: Seat) -> bool:
        """From now on this seat, and all that was issued so far is stale. False: ignored, as above.

        Foreseen switches are forgotten, except to generations that are newer still.
        """
        with self._lock:
            (_, present), *foreseen = self._entries
            if seat.generation < present.seat.generation:
                return False
            era = present.era + 1
            newer = [
                (start, Ticket(era, known.seat))
                for start, known in foreseen
                if known.seat.generation > seat.generation
            ]
            self._entries = [(ALWAYS, Ticket(era, seat)), *newer]
            self.version += 1
            return True
