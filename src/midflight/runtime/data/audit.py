"""Whether the ledgers of a run prove that every sample of each epoch was used exactly once.

Pure: lines in, a report out. A step that was completed once more, because the only member that had
completed it died before anyone had its state, counts in its highest generation. One record vouches
for the whole step: a step is complete only if all members of its world took part in it. Positions
are places in an epoch's order; which sample stands at which place follows from the seed, which a
ledger does not hold, so the checksums in the ledgers are not judged here. Nor does it hold the
number of shards of deterministic mode: the one that explains all shares is looked for. Who came
into a world with another state than the others, and what became of it, is told by lines of another
kind; so is that the job began with a checkpoint, and then the steps before it are the former run's.
Free of torch, like the `plan` whose shares it works out again, so that the command line can
use it.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

from midflight.runtime.data.plan import share

MOST_SHARDS = 1024


@dataclass(frozen=True, slots=True)
class Record:
    """A member's line about one step; see `ledger`."""

    member: str
    step: int
    epoch: int
    start: int
    stop: int
    generation: int
    rank: int
    size: int
    own: int  # how many samples it used itself
    sharers: int = 0  # so many first ranks shared the samples; 0: all did


@dataclass(frozen=True)
class Comparison:
    """A member's line about the state with which it came when all compared theirs."""

    member: str
    compared: str  # enter (a world), or verify (in one that was whole)
    generation: int
    progress: tuple[int, int, int]  # generation of its last step, steps, epoch
    digest: str
    differed: str  # in what; "": it did not, or was behind
    source: str  # whose state it took over; "": it kept its own


@dataclass(frozen=True)
class EpochReport:
    epoch: int
    samples: int  # different ones that were used
    steps: int
    worlds: int
    smallest: int  # of those worlds, in members
    largest: int
    repeated: int  # attempts at a step that did not count in the end
    missing: int
    duplicated: int
    under_way: bool  # the last one, which has not come to its end yet, or was left early


@dataclass(frozen=True)
class Report:
    epochs: tuple[EpochReport, ...]
    shares: int  # one for each member of each step
    vouched: int  # of them, those without a record of their own
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()  # differences between members that were put right

    @property
    def missing(self) -> int:
        return sum(epoch.missing for epoch in self.epochs)

    @property
    def duplicated(self) -> int:
        return sum(epoch.duplicated for epoch in self.epochs)

    @property
    def ok(self) -> bool:
        return not (self.missing or self.duplicated or self.problems)


@dataclass(frozen=True)
class _Step:
    """The attempt at a step that counts, and how many did not."""

    records: Sequence[Record]
    given_up: int

    @property
    def first(self) -> Record:
        return self.records[0]


@dataclass(frozen=True)
class _Tally:
    missing: int
    duplicated: int
    problems: tuple[str, ...]
    covered: int = 0  # different samples


UNKNOWN = "0.0"  # the digest of a state that could not be packed
_OPTIONAL = ("sharers",)
_NUMBERS = tuple(field.name for field in fields(Record) if field.name != "member")


def parse(member: str, text: str) -> tuple[list[Record], list[str]]:
    """A ledger's records, and what is wrong with it. A last line that has no end is being written,
    or its writer was killed in the middle of it; either way it says nothing yet."""
    records: list[Record] = []
    problems: list[str] = []
    for number, line in enumerate(_lines(text), start=1):
        record = _record(member, line)
        if record is not None:
            records.append(record)
        elif _comparison(member, line) is None and _resumed(line) is None:
            problems.append(f"line {number} of {member}'s ledger is damaged")
    return records, problems


def parse_comparisons(member: str, text: str) -> list[Comparison]:
    """What a ledger tells of comparisons; `parse` says what is wrong with it."""
    found = (_comparison(member, line) for line in _lines(text) if '"compared"' in line)
    return [comparison for comparison in found if comparison is not None]


def parse_resumed(text: str) -> set[int]:
    """The steps with which this member says that the job began."""
    found = (_resumed(line) for line in _lines(text) if line.startswith('{"resumed":'))
    return {step for step in found if step is not None}


def _resumed(line: str) -> int | None:
    try:
        step = json.loads(line)["resumed"]
    except (ValueError, KeyError, TypeError):
        return None
    return step if type(step) is int and step >= 0 else None


@dataclass(frozen=True)
class Chain:
    """The records of a run and of those before it whose state it goes on with."""

    records: Sequence[Record]
    complete: bool = True  # from the first step on; else what came before is not known
    notes: tuple[str, ...] = ()


def follow(former: Chain | None, records: Sequence[Record], resumed: Collection[int]) -> Chain:
    """What a run adds to the one before it.

    `resumed`: the steps with which its members say that they began. Only one that is the run's
    first tells something: a newcomer that reads a checkpoint is given the others' state.
    """
    first = min((record.step for record in records), default=0)
    if first not in resumed:
        return Chain(records)
    before = [record for record in former.records if record.step < first] if former else []
    if former is None or first - 1 not in {record.step for record in before}:
        return Chain(records, complete=False)
    last = max(record.step for record in former.records)
    twice = f"steps {first} to {last} were" if last > first else f"step {first} was"
    note = f"the run began with the former run's checkpoint of step {first}"
    if last >= first:
        note = f"{twice} done twice: {note}"
    newest = max(record.generation for record in before)
    later = [replace(record, generation=record.generation + newest) for record in records]
    return Chain([*before, *later], former.complete, (*former.notes, note))


def _lines(text: str) -> list[str]:
    return text[: text.rfind("\n") + 1].splitlines()


def _comparison(member: str, line: str) -> Comparison | None:
    try:
        found = json.loads(line)
        words = [found[name] for name in ("compared", "digest", "differed", "source")]
        generation, steps = found["generation"], [*found["progress"]]
    except (ValueError, KeyError, TypeError):
        return None
    if not all(isinstance(word, str) for word in words) or len(steps) != 3:
        return None
    if not all(type(number) is int for number in (generation, *steps)):
        return None
    when, digest, differed, source = words
    progress = (steps[0], steps[1], steps[2])
    return Comparison(member, when, generation, progress, digest, differed, source)


def compare(comparisons: Iterable[Comparison]) -> tuple[list[str], list[str]]:
    """Who differed: first the differences that stayed, then those that were put right."""
    problems: list[str] = []
    notes: list[str] = []
    kept: dict[tuple[int, tuple[int, int, int]], Comparison] = {}
    for one in sorted(comparisons, key=lambda c: (c.generation, c.progress, c.member)):
        if one.compared == "verify":
            problems.append(one.differed)
        elif one.differed:
            notes.append(
                f"{one.member} came into generation {one.generation} after {one.progress[1]} steps "
                f"with another state than {one.source}, and took that over: {one.differed}"
            )
        elif not one.source and one.digest != UNKNOWN:
            other = kept.setdefault((one.generation, one.progress), one)
            if other.digest != one.digest:
                problems.append(
                    f"{other.member} and {one.member} came into generation {one.generation} after "
                    f"{one.progress[1]} steps with different states, and kept them"
                )
    return problems, notes


def _record(member: str, line: str) -> Record | None:
    try:
        found = json.loads(line)
        values = [found.get(name, 0) if name in _OPTIONAL else found[name] for name in _NUMBERS]
    except (ValueError, KeyError, TypeError):
        return None
    if not all(type(value) is int and value >= 0 for value in values):
        return None
    record = Record(member, *values)
    return record if record.start < record.stop and record.rank < record.size else None


def judge(
    records: Iterable[Record], *, samples: int | None = None, resumed: bool = False
) -> Report:
    """The report on all members' records.

    `samples`: how many each epoch has; None: as many as the longest one shows. `resumed`: the run
    began from a checkpoint, and what lies before its first step is in another run's ledgers.
    """
    steps, problems = _counted(records)
    shares = sum(step.first.size for step in steps)
    signed = sum(len({record.rank for record in step.records}) for step in steps)
    by_epoch: dict[int, list[_Step]] = {}
    for step in steps:
        by_epoch.setdefault(step.first.epoch, []).append(step)
    end = samples or max((step.first.stop for step in steps), default=0)
    shards = _shards_of([record for step in steps for record in step.records])
    reports = []
    for number, epoch in enumerate(_numbers(by_epoch, resumed)):
        own = by_epoch.get(epoch, [])
        begin = own[0].first.start if resumed and number == 0 and own else 0
        reached = max((step.first.stop for step in own), default=0)
        under_way = epoch == max(by_epoch) and reached < end
        tallies = (_tiling(epoch, own, begin, reached if under_way else end), _shares(own, shards))
        reports.append(_report(epoch, own, tallies, under_way=under_way))
        problems += [problem for tally in tallies for problem in tally.problems]
    return Report(tuple(reports), shares, shares - signed, tuple(problems))


def _numbers(by_epoch: dict[int, list[_Step]], resumed: bool) -> range:
    """The epochs that there must be, also those of which there is no record."""
    if not by_epoch:
        return range(0)
    return range(min(by_epoch) if resumed else 0, max(by_epoch) + 1)


def _counted(records: Iterable[Record]) -> tuple[list[_Step], list[str]]:
    """Each step with the records that count, in the order of the steps."""
    attempts: dict[int, dict[int, list[Record]]] = {}
    for record in records:
        attempts.setdefault(record.step, {}).setdefault(record.generation, []).append(record)
    steps: list[_Step] = []
    problems: list[str] = []
    for number in sorted(attempts):
        generations = attempts[number]
        steps.append(_Step(generations[max(generations)], len(generations) - 1))
        everyone = [record for group in generations.values() for record in group]
        problems += _disagreements(number, everyone)
    for before, after in pairwise(step.first for step in steps):
        if after.generation < before.generation:
            problems.append(
                f"step {after.step} was done in generation {after.generation}, although step "
                f"{before.step} before it was done in generation {before.generation}"
            )
    return steps, problems


def _disagreements(step: int, records: Sequence[Record]) -> Iterator[str]:
    first = records[0]
    for other in records[1:]:
        if (other.epoch, other.start, other.stop) != (first.epoch, first.start, first.stop):
            yield (
                f"step {step} used {_extent(first)} by {first.member}'s ledger, and "
                f"{_extent(other)} by {other.member}'s"
            )
    sizes: dict[int, Record] = {}
    for record in records:
        known = sizes.setdefault(record.generation, record)
        if known.size != record.size:
            yield (
                f"generation {record.generation} had {known.size} members by {known.member}'s "
                f"ledger, and {record.size} by {record.member}'s"
            )


def _report(
    epoch: int, steps: Sequence[_Step], tallies: Sequence[_Tally], *, under_way: bool
) -> EpochReport:
    sizes = [step.first.size for step in steps]
    return EpochReport(
        epoch=epoch,
        samples=tallies[0].covered,
        steps=len(steps),
        worlds=len({step.first.generation for step in steps}),
        smallest=min(sizes, default=0),
        largest=max(sizes, default=0),
        repeated=sum(step.given_up for step in steps),
        missing=sum(tally.missing for tally in tallies),
        duplicated=sum(tally.duplicated for tally in tallies),
        under_way=under_way,
    )


def _tiling(epoch: int, steps: Sequence[_Step], begin: int, end: int) -> _Tally:
    """How far the steps' extents are from covering [begin, end) once."""
    missing = duplicated = covered = 0
    problems = []
    reached = begin
    for start, stop in (*sorted((s.first.start, s.first.stop) for s in steps), (end, end)):
        if start > reached:
            missing += start - reached
            problems.append(f"epoch {epoch}: {_places(reached, start)} were never used")
        elif start < min(stop, reached):
            twice = min(stop, reached)
            duplicated += twice - start
            problems.append(f"epoch {epoch}: {_places(start, twice)} were used twice")
        covered += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    if reached > end:
        duplicated += reached - end
        problems.append(f"epoch {epoch}: {reached} samples were used, and it has {end}")
    return _Tally(missing, duplicated, tuple(problems), covered)


def _shares(steps: Iterable[_Step], shards: int | None) -> _Tally:
    """Whether those who kept a record used what was theirs, once."""
    missing = duplicated = 0
    problems = []
    for step in steps:
        seated: dict[int, Record] = {}
        for record in step.records:
            due = _due(record, shards)
            surplus = record.own - due
            if surplus:
                problems.append(
                    f"step {record.step}: {record.member}, rank {record.rank} of {record.size}, "
                    f"used {record.own} samples; its share was {due}"
                )
            if seated.setdefault(record.rank, record) is not record:
                surplus = record.own
                problems.append(
                    f"step {record.step}: {seated[record.rank].member} and {record.member} both "
                    f"used the share of rank {record.rank} of {record.size}"
                )
            missing += max(0, -surplus)
            duplicated += max(0, surplus)
    return _Tally(missing, duplicated, tuple(problems))


def _due(record: Record, shards: int | None) -> int:
    """How many samples were this member's."""
    sharers = record.sharers or record.size
    if record.rank >= sharers:
        return 0
    if shards is None:
        first, last = share(record.start, record.stop, record.rank, sharers)
        return last - first
    first, end = share(0, shards, record.rank, sharers)
    cuts = (share(record.start, record.stop, shard, shards) for shard in range(first, end))
    return sum(stop - start for start, stop in cuts)


def _shards_of(records: Sequence[Record]) -> int | None:
    """Into how many shards batches were cut, if that explains what plain shares do not."""
    others = [record for record in records if record.own != _due(record, None)]
    for shards in range(1, MOST_SHARDS + 1) if others else ():
        if all(record.own == _due(record, shards) for record in (*others, *records)):
            return shards
    return None


def _extent(record: Record) -> str:
    return f"{_places(record.start, record.stop)} of epoch {record.epoch}"


def _places(start: int, stop: int) -> str:
    return f"positions {start} to {stop - 1}"
