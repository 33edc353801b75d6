"""Which samples a step uses, and which of them are whose.

Decides from plain numbers: a `Plan` (the same on every member), a `Cursor` (how far the job has
come) and a `Seat` (one member's place in a world). A step uses the next `global_batch_size` samples
of its epoch whatever the size of the world; each member's share is a contiguous slice of them.
The end of an epoch and the start of the next are two cursors, (e, n) and (e + 1, 0), because a
script may evaluate in between. Which sample stands at which position is `sampler.EpochOrder`'s.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from midflight.errors import DataError


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far the job has come: the next step, and the samples of this epoch already used."""

    step: int = 0
    epoch: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True)
class Seat:
    """One member's place in one world."""

    generation: int
    rank: int
    size: int
    sharers: int | None = None  # so many first ranks share the samples; None: all do

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"no rank {self.rank} in a world of {self.size}")
        if self.sharers is not None and not 0 < self.sharers < self.size:
            raise ValueError(f"{self.sharers} of {self.size} members cannot share the samples")

    @property
    def order(self) -> tuple[int, int]:
        """Grows with each change of who has which share."""
        return self.generation, self.size if self.sharers is None else self.sharers


@dataclass(frozen=True, slots=True)
class Extent:
    """A step's global batch: positions [start, stop) of the epoch's order, never empty."""

    step: int
    epoch: int
    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start

    @property
    def before(self) -> Cursor:
        """Where a job stands that is about to do this step."""
        return Cursor(self.step, self.epoch, self.start)

    @property
    def after(self) -> Cursor:
        """Where a job stands that has done it; at an epoch's end it stays in that epoch."""
        return Cursor(self.step + 1, self.epoch, self.stop)


@dataclass(frozen=True, slots=True)
class Piece:
    """One micro batch of one member: positions [start, stop), and what its mean loss counts for."""

    start: int
    stop: int
    weight: float  # 0.0: a placeholder, loaded only so that the member can join the collectives
    last: bool  # of its step
    shard: int = 0  # in deterministic mode: which of the fixed shards it is


@dataclass(frozen=True, slots=True)
class Plan:
    """What fixes the data of a whole job. Members whose plans differ must not train together."""

    samples: int
    global_batch_size: int
    micro_batch_size: int | None = None  # None: a share is loaded as one batch
    drop_last: bool = False
    shuffle: bool = True
    seed: int = 0
    epochs: int | None = None  # None: one epoch per iteration, the script counts them
    shards: int | None = None  # deterministic mode: batches are cut into so many, at any size

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise DataError("the dataset is empty: give job.batches() at least one sample")
        _check_positive("global_batch_size", self.global_batch_size)
        if self.micro_batch_size is not None:
            _check_positive("micro_batch_size", self.micro_batch_size)
        if self.shards is not None:
            _check_positive("shards", self.shards)
        if self.epochs is not None and self.epochs < 0:
            raise DataError(f"epochs is {self.epochs}: give 0 or more, or None to count yourself")
        if self.steps_per_epoch == 0:
            raise DataError(
                f"the dataset has {self.samples} samples, global_batch_size is "
                f"{self.global_batch_size}, and drop_last drops them all: "
                "make the batch smaller or leave drop_last off"
            )

    def in_common(self) -> dict[str, Any]:
        """What has to be the same on every member; how a share is cut up is its own business."""
        own = asdict(self)
        del own["micro_batch_size"]
        return own

    @property
    def steps_per_epoch(self) -> int:
        full, rest = divmod(self.samples, self.global_batch_size)
        return full if self.drop_last or not rest else full + 1

    def check_world(self, size: int) -> None:
        """Refuse to start a world in which somebody would never get a sample."""
        if self.samples < size:
            raise DataError(
                f"the dataset has {self.samples} samples, the world has {size} members: "
                f"start at most {self.samples} members or use a larger dataset"
            )

    def ended(self, cursor: Cursor) -> bool:
        """Whether the cursor's epoch has no further step."""
        left = self.samples - cursor.position
        return left < self.global_batch_size if self.drop_last else left <= 0

    def complete(self, cursor: Cursor, epochs: int) -> bool:
        """Whether so many epochs are done, counted from the job's start."""
        return cursor.epoch + self.ended(cursor) >= epochs

    def rolled(self, cursor: Cursor) -> Cursor:
        """The start of the next epoch for a cursor at the end of one; any other stays."""
        if not self.ended(cursor):
            return cursor
        return replace(cursor, epoch=cursor.epoch + 1, position=0)

    def extent_at(self, cursor: Cursor) -> Extent:
        """The global batch of the cursor's step."""
        if self.ended(cursor):
            raise ValueError(f"{cursor} is at the end of its epoch: roll it over first")
        stop = min(cursor.position + self.global_batch_size, self.samples)
        return Extent(cursor.step, cursor.epoch, cursor.position, stop)

    def pieces(
        self, extent: Extent, rank: int, size: int, sharers: int | None = None
    ) -> tuple[Piece, ...]:
        """A member's micro batches of a step, in order; at least one."""
        if sharers is not None and rank >= sharers:
            return (self._placeholder(extent),)
        if self.shards is not None:
            return self._shards(extent, *share(0, self.shards, rank, sharers or size))
        start, stop = share(extent.start, extent.stop, rank, sharers or size)
        if start == stop:
            return (self._placeholder(extent),)
        return tuple(
            Piece(a, b, weight=weight(b - a, size, extent.count), last=b == stop)
            for a, b in micro_batches(start, stop, self.micro_batch_size)
        )

    def _placeholder(self, extent: Extent) -> Piece:
        """For a member without a share: two samples, as BatchNorm refuses a single one."""
        start = max(0, min(extent.start, self.samples - 2))
        return Piece(start, min(start + 2, self.samples), weight=0.0, last=True)

    def _shards(self, extent: Extent, first: int, end: int) -> tuple[Piece, ...]:
        """The shards [first, end): their cut, and so their arithmetic, is that of any world."""
        assert self.shards is not None
        cuts = {n: share(extent.start, extent.stop, n, self.shards) for n in range(first, end)}
        real = {n: (a, b) for n, (a, b) in cuts.items() if a < b}
        if not real:
            return (self._placeholder(extent),)
        return tuple(
            Piece(a, b, weight=(b - a) / extent.count, last=n == max(real), shard=n)
            for n, (a, b) in real.items()
        )


def share(start: int, stop: int, rank: int, size: int) -> tuple[int, int]:
    """A member's slice of [start, stop): the slices tile it, and differ by one sample at most."""
    least, rest = divmod(stop - start, size)
    first = start + rank * least + min(rank, rest)
    return first, first + least + (rank < rest)


def explain_single(extent: Extent, size: int) -> str:
    """What a member can do that was handed one sample, which batch normalization refuses."""
    if extent.count < 2 * size:
        few = extent.count // 2
        return (
            f"a batch of {extent.count} samples was shared out among {size} members, and batch "
            "normalization cannot train on a share of one: leave a short last batch out "
            "(plan={'drop_last': True}), give each step at least two samples for each member "
            f"(global_batch_size={2 * size} or more)"
            + (f", or allow {few} members at most (--max-np {few})" if few else "")
        )
    return (
        "a share was cut into parts, one of which is a single sample, and batch normalization "
        "cannot train on that: choose a micro_batch_size, or a number of shards, with which each "
        "part has two samples or more, and leave a short last batch out (plan={'drop_last': True})"
    )


def micro_batches(start: int, stop: int, at_most: int | None) -> list[tuple[int, int]]:
    """[start, stop) cut into consecutive slices of at most so many samples (None: no limit)."""
    length = at_most or max(stop - start, 1)
    return [(a, min(a + length, stop)) for a in range(start, stop, length)]


def weight(own: int, size: int, total: int) -> float:
    """What to multiply a mean loss over `own` samples by, so that the average over `size` members
    is the mean over all `total` samples. Exactly 1.0 when the shares are even."""
    return own * size / total


def _check_positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or value < 1:
        raise DataError(f"{name} is {value!r}: give a whole number of samples, 1 or more")
