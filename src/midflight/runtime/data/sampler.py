"""Which dataset indices this member loads next, ahead of their use.

`ElasticBatchSampler` is a `batch_sampler` for any DataLoader over a map-style dataset. It follows
the plan and the schedule from a cursor on, and remembers in order what it issued, so that the feed
knows what each loaded batch is without asking the loader. If a switch is foreseen for a step that
was issued already, it goes back to that step at once, so that the right data is there in time. The
DataLoader calls it in the training process, also when workers do the loading. One consumer: a new
iteration ends the one before it. Whether an issued batch is still wanted when it arrives is the
feed's decision.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch.utils.data import Sampler

from midflight.runtime.data.plan import Cursor, Extent, Piece, Plan, Seat
from midflight.runtime.data.schedule import Schedule, Ticket


@dataclass(frozen=True, slots=True)
class Issued:
    """One micro batch as it was handed to the loader."""

    extent: Extent
    ticket: Ticket
    micro: int
    indices: tuple[int, ...]  # what is really used; empty when only the placeholder is loaded
    placeholder: tuple[int, ...]  # two indices, when the share is empty
    weight: float
    last_micro: bool
    shard: int = 0

    @property
    def seat(self) -> Seat:
        return self.ticket.seat

    def is_for(self, extent: Extent, ticket: Ticket, micro: int) -> bool:
        return (self.micro, self.ticket, self.extent) == (micro, ticket, extent)


class EpochOrder:
    """The order of the samples in each epoch: the same on every member, fixed by seed and epoch."""

    def __init__(self, samples: int, *, seed: int, shuffle: bool) -> None:
        self._samples = samples
        self._seed = seed
        self._shuffle = shuffle
        self._orders: dict[int, torch.Tensor] = {}  # this epoch's and the next one's

    def __call__(self, epoch: int, start: int, stop: int) -> tuple[int, ...]:
        """The dataset indices at these positions of an epoch."""
        if not self._shuffle:
            return tuple(range(start, stop))
        return tuple(self._order(epoch)[start:stop].tolist())

    def _order(self, epoch: int) -> torch.Tensor:
        if epoch not in self._orders:
            source = torch.Generator().manual_seed(epoch_seed(self._seed, epoch))
            self._orders[epoch] = torch.randperm(self._samples, generator=source)
            for old in list(self._orders)[:-2]:
                del self._orders[old]
        return self._orders[epoch]


def epoch_seed(seed: int, epoch: int) -> int:
    """Seed and epoch mixed, so that (1, 2) and (2, 1) have nothing in common."""
    digest = hashlib.blake2b(f"midflight order {seed} {epoch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class ElasticBatchSampler(Sampler[list[int]]):
    """Index lists for this member, one per micro batch, from a cursor on.

    It ends after `plan.epochs` epochs, or, where that is None, with the epoch it was rewound into.
    """

    def __init__(self, plan: Plan, schedule: Schedule) -> None:
        self.plan = plan
        self.issued: deque[Issued] = deque()  # oldest first; whoever receives a batch pops it
        self.horizon = -1  # the furthest step that is being loaded; a switch after it costs nothing
        self._schedule = schedule
        self._order = EpochOrder(plan.samples, seed=plan.seed, shuffle=plan.shuffle)
        self._rest: deque[Issued] = deque()  # of the step being issued, never its first
        self._iteration = 0
        self._version = schedule.version  # of the schedule, when what was issued was last checked
        self.rewind(Cursor())

    def example(self, rank: int, size: int, sharers: int | None = None) -> Issued:
        """What such a member might be issued in a step before the first."""
        extent = replace(self.plan.extent_at(Cursor()), step=-1)
        piece = self.plan.pieces(extent, rank, size, sharers)[0]
        return self._issued(extent, self._schedule.ticket(0), 0, piece)

    def rewind(self, cursor: Cursor) -> None:
        """Go on from this cursor. What was issued before still arrives first."""
        self._cursor = self.plan.rolled(cursor)
        self._epochs = self._cursor.epoch + 1 if self.plan.epochs is None else self.plan.epochs
        self._rest.clear()
        self._since_rewind = 0  # how many of those issued go on from there
        self.horizon = cursor.step - 1

    def ahead_of(self, extent: Extent, ticket: Ticket) -> int | None:
        """How many issued batches arrive before that step's first; None: it will not come."""
        for place, issued in enumerate(self.issued):
            if issued.is_for(extent, ticket, 0):
                return place
        comes_next = not self._rest and self._upcoming() == extent.before
        return len(self.issued) if comes_next else None

    def __iter__(self) -> Iterator[list[int]]:
        self.issued.clear()
        self._iteration += 1
        return self._run(self._iteration)

    def _run(self, iteration: int) -> Iterator[list[int]]:
        while iteration == self._iteration:
            issued = self._issue()
            if issued is None:
                return
            yield list(issued.indices or issued.placeholder)

    def _issue(self) -> Issued | None:
        self._go_back_if_stale()
        if not self._rest:
            cursor = self._upcoming()
            if cursor is None:
                return None
            self._rest.extend(self._cut(self.plan.extent_at(cursor)))
            self._cursor = self._rest[0].extent.after
            self.horizon = cursor.step
        issued = self._rest.popleft()
        self.issued.append(issued)
        self._since_rewind += 1
        return issued

    def _go_back_if_stale(self) -> None:
        """To the first step that was issued, or is being issued, for a seat that is not valid."""
        version = self._schedule.version
        if version == self._version:
            return
        self._version = version
        arriving = tuple(self.issued)[-self._since_rewind :] if self._since_rewind else ()
        for issued in (*arriving, *self._rest):
            if issued.ticket != self._schedule.ticket(issued.extent.step):
                self.rewind(issued.extent.before)
                return

    def _upcoming(self) -> Cursor | None:
        """The step to be issued next; None: the last one was."""
        if self.plan.complete(self._cursor, self._epochs):
            return None
        return self.plan.rolled(self._cursor)

    def _cut(self, extent: Extent) -> Sequence[Issued]:
        ticket = self._schedule.ticket(extent.step)
        seat = ticket.seat
        pieces = self.plan.pieces(extent, seat.rank, seat.size, seat.sharers)
        return [self._issued(extent, ticket, micro, piece) for micro, piece in enumerate(pieces)]

    def _issued(self, extent: Extent, ticket: Ticket, micro: int, piece: Piece) -> Issued:
        indices = self._order(extent.epoch, piece.start, piece.stop)
        used, placeholder = (indices, ()) if piece.weight else ((), indices)
        return Issued(
            extent, ticket, micro, used, placeholder, piece.weight, piece.last, piece.shard
        )
