"""The iterator behind `job.batches()`: the right batch at each step, whatever happened meanwhile.

Before each step it lets the session settle the world (`boundary`), looks where the job stands now,
drops what was loaded for another world or step, and hands out the step's micro batches. A step
that did not complete is handed out again. It never moves the cursor itself, except over the end of
an epoch: that happens before the boundary of the next epoch's first step, never at the end, so
that a script may evaluate in between and a newcomer still finds the job at a step's start.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.utils.data import DataLoader

from midflight.errors import DataError
from midflight.runtime.data.loader import Batch, adopted
from midflight.runtime.data.plan import Cursor, Extent
from midflight.runtime.data.sampler import ElasticBatchSampler, Issued
from midflight.runtime.data.schedule import Schedule, Ticket

NOTHING = object()  # what an exhausted loader gives


class FeedSession(Protocol):
    """What the feed needs of a session; all of it is called in the training thread."""

    cursor: Cursor
    """The next step. The session moves it when a step completes (to `issued.extent.after`) or when
    it receives the state; the feed rolls it over to the next epoch."""

    overtaken: bool
    """Set by the feed when an epoch ends here only because the others are past it: what a script
    does between two epochs (an evaluation with `all_reduce`, say) they do not do with this member.
    Until the next boundary."""

    @property
    def schedule(self) -> Schedule: ...

    def boundary(self) -> None:
        """All of the script's code for the last step has run, and another step is wanted.

        World changes that are due happen here; cursor and schedule may be others afterwards.
        """

    def begin(self, issued: Issued) -> bool:
        """This micro batch is about to be handed out. False: the step is void, back to `boundary`.

        Micro batch 0 begins a step, perhaps the same one again: nothing of the last attempt counts.
        """


class Feed:
    """Batches for this member. May be iterated again: it goes on where the job stands."""

    def __init__(
        self, session: FeedSession, loader: DataLoader[Any], sampler: ElasticBatchSampler
    ) -> None:
        self.sampler = sampler
        self.dropped = 0  # batches that were loaded and not used, because the world changed
        self.rehearsal: Callable[[], Iterator[Batch]] | None = None  # comes before all batches
        self.ended: Callable[[], None] | None = None  # after all batches, on all members
        self._session = session
        self._plan = sampler.plan
        self._loader: DataLoader[Any] | None = adopted(loader, sampler)  # None: closed
        self._iterator: Iterator[Any] | None = None
        self._handed: tuple[Cursor, Ticket] | None = None  # the last step handed out in full

    def __iter__(self) -> Iterator[Batch]:
        if self.rehearsal is not None:
            yield from self.rehearsal()
        self._handed = None
        epochs = self._plan.epochs  # None until the first boundary has shown where the job stands
        while epochs is None or not self._plan.complete(self._session.cursor, epochs):
            self._settle()
            cursor = self._session.cursor
            if self._plan.ended(cursor) or (epochs is not None and cursor.epoch >= epochs):
                self._session.overtaken = True  # and this member has received their state
                continue
            if epochs is None:
                epochs = cursor.epoch + 1
            yield from self._step(cursor)
        if self.ended is not None:
            self.ended()

    def sample(self, rank: int, size: int, sharers: int | None = None) -> Batch:
        """A batch of the kind that such a member will get, for a step that does not count."""
        assert self._loader is not None
        issued = self.sampler.example(rank, size, sharers)
        indices = issued.indices or issued.placeholder
        items = [self._loader.dataset[index] for index in indices]
        if self._loader.num_workers and self._iterator is None:
            self.prime(self._session.cursor)  # have the workers up in time
        return Batch(self._loader.collate_fn(items), issued)

    def prime(self, cursor: Cursor) -> None:
        """Begin to load for a step that is expected, so that a newcomer has data at its first."""
        self.sampler.rewind(cursor)
        self._iterator = self._open()

    def close(self) -> None:
        """Let go of the loader's workers."""
        self._iterator = self._loader = None

    def _settle(self) -> None:
        """Roll over to the next epoch if one ended, and let the session change the world."""
        self._session.cursor = self._plan.rolled(self._session.cursor)
        self._session.boundary()
        cursor = self._session.cursor
        ticket = self._session.schedule.ticket(cursor.step)
        if self._handed == (cursor, ticket):
            raise DataError(
                f"step {cursor.step} was handed out, but not completed, and no failure explains it:"
                " call job.step(loss) exactly once for every batch"
            )
        if cursor.step == 0:
            self._plan.check_world(ticket.seat.size)

    def _step(self, cursor: Cursor) -> Iterator[Batch]:
        """Hand out one step's micro batches, or as many of them as the world lasts for."""
        extent = self._plan.extent_at(cursor)
        ticket = self._session.schedule.ticket(cursor.step)
        self._align(extent, ticket)
        micro = 0
        while self._session.cursor == cursor:
            issued, data = self._pull()
            # the loader is one batch behind the schedule when another thread just changed it
            if not issued.is_for(extent, ticket, micro) or not self._session.begin(issued):
                self.dropped += 1
                return
            yield Batch(data, issued)
            if issued.last_micro:
                self._handed = (cursor, ticket)
                return
            if self._session.schedule.ticket(cursor.step) != ticket:
                return
            micro += 1

    def _align(self, extent: Extent, ticket: Ticket) -> None:
        """Make the loader's next batch the first one of that step."""
        if self._iterator is None:
            self.prime(extent.before)
        stale = self.sampler.ahead_of(extent, ticket)
        if stale is None:
            self.sampler.rewind(extent.before)
            stale = len(self.sampler.issued)
        for _ in range(stale):  # each one pulled lets a right one be issued
            self._pull()
        self.dropped += stale

    def _open(self) -> Iterator[Any]:
        if self._loader is None:
            raise DataError("the job is over: iterate job.batches() inside `with mf.join(...)`")
        return iter(self._loader)

    def _pull(self) -> tuple[Issued, Any]:
        """The loader's next batch, and what it is."""
        try:
            data = NOTHING if self._iterator is None else next(self._iterator, NOTHING)
            if data is NOTHING and not self.sampler.issued:  # the sampler had come to its end
                self._iterator = self._open()
                data = next(self._iterator, NOTHING)
        except BaseException:
            self._iterator = None  # what was issued is lost: begin anew if the script goes on
            raise
        if data is NOTHING or not self.sampler.issued:
            raise DataError(
                "the DataLoader did not give one batch for each that its sampler issued: "
                "use the sampler in one DataLoader and iterate only job.follow(loader)"
            )
        return self.sampler.issued.popleft(), data
