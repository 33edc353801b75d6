"""A whole elastic job in one thread: real feeds and DataLoaders, a world that changes by script.

Every member is a `FakeSession` with its own `Feed`. The cluster moves all of them through one step
at a time, checks each batch against the plan, and keeps the ledger of what counted.
"""

import random
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch.utils.data import Dataset

from midflight.runtime.data.feed import Feed
from midflight.runtime.data.loader import Batch, build_loader
from midflight.runtime.data.plan import Cursor, Extent, Plan, Seat
from midflight.runtime.data.sampler import ElasticBatchSampler, EpochOrder, Issued
from midflight.runtime.data.schedule import Schedule


class Numbers(Dataset[Any]):
    """Sample i is (i, 10 i), so that a batch tells what is in it."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(index), torch.tensor(10 * index)


class FakeSession:
    """A session without a world behind it: what happens at its next boundary is put into `due`."""

    def __init__(self, seat: Seat, cursor: Cursor | None = None) -> None:
        self.schedule = Schedule(seat)
        self.cursor = cursor or Cursor()
        self.due: list[Callable[[], None]] = []
        self.boundaries: list[Cursor] = []
        self.begun: list[Issued] = []
        self.void = False

    def boundary(self) -> None:
        self.boundaries.append(self.cursor)
        while self.due:
            self.due.pop(0)()

    def begin(self, issued: Issued) -> bool:
        self.begun.append(issued)
        refused, self.void = self.void, False
        return not refused

    def complete(self) -> None:
        self.cursor = self.begun[-1].extent.after

    def receive(self, cursor: Cursor) -> None:
        """The next boundary finds the others' state, as a newcomer or a straggler does."""
        self.due.append(lambda: setattr(self, "cursor", cursor))


def feed_for(
    session: FakeSession, plan: Plan, workers: int = 0, prefetch: int | None = None
) -> Feed:
    """`prefetch`: how many batches each worker loads ahead; None: as many as torch's default."""
    sampler = ElasticBatchSampler(plan, session.schedule)
    loader = build_loader(
        Numbers(plan.samples), sampler, num_workers=workers, prefetch_factor=prefetch
    )
    return Feed(session, loader, sampler)


def train(feed: Feed, session: FakeSession) -> list[Batch]:
    """What a script without mishaps does."""
    batches = []
    for batch in feed:
        batches.append(batch)
        if batch.last_micro:
            session.complete()
    return batches


def used(batches: list[Batch]) -> list[int]:
    return [index for batch in batches for index in batch.indices]


class Member:
    def __init__(self, plan: Plan, workers: int, prefetch: int | None, seat: Seat) -> None:
        self.session = FakeSession(seat)
        self.feed = feed_for(self.session, plan, workers, prefetch)
        self.batches: Generator[Batch] = iter(self.feed)  # type: ignore[assignment]

    def take(self, extent: Extent, micros: int | None = None) -> list[Batch]:
        """This step's micro batches, or only so many of them."""
        taken: list[Batch] = []
        while len(taken) != micros and not (taken and taken[-1].last_micro):
            batch = next(self.batches)
            assert batch.issued.extent == extent
            assert batch.issued.micro == len(taken)
            loaded = list(batch.indices or batch.issued.placeholder)
            assert batch.x.tolist() == loaded
            assert batch.y.tolist() == [10 * index for index in loaded]
            taken.append(batch)
        return taken

    def close(self) -> None:
        self.batches.close()
        self.feed.close()


class Cluster:
    """Members that go through the plan together, in worlds that come and go."""

    def __init__(
        self,
        plan: Plan,
        size: int,
        workers: int,
        chance: random.Random,
        prefetch: int | None = None,
    ) -> None:
        self.plan, self.workers, self.prefetch, self.chance = plan, workers, prefetch, chance
        self.order = EpochOrder(plan.samples, seed=plan.seed, shuffle=plan.shuffle)
        self.cursor = Cursor()
        self.generation = 1
        self.world = [self.newcomer(rank, size) for rank in range(size)]
        self.planned: tuple[int, list[Member | None]] | None = None  # None: somebody new
        self.ledger: list[tuple[int, int]] = []

    def newcomer(self, rank: int, size: int) -> Member:
        member = Member(self.plan, self.workers, self.prefetch, Seat(self.generation, rank, size))
        member.session.receive(self.cursor)
        return member

    def run(self) -> None:
        assert self.plan.epochs is not None
        while not self.plan.complete(self.cursor, self.plan.epochs):
            self.cursor = self.plan.rolled(self.cursor)
            self.switch_if_due()
            self.happen()
        for member in self.world:
            assert next(member.batches, None) is None
            assert self.plan.rolled(member.session.cursor) == self.plan.rolled(self.cursor)

    def happen(self) -> None:
        """One attempt at a step, and what becomes of it."""
        kinds = {"step": 8, "plan": 3, "withdraw": 1, "fail": 2, "split": 1, "late": 1}
        (what,) = self.chance.choices(list(kinds), list(kinds.values()))
        extent = self.plan.extent_at(self.cursor)
        if what == "plan":
            self.foresee()
        if what == "withdraw":
            self.withdraw()
        if what == "late":  # the news of a switch comes when its step has begun
            for member in self.world:
                member.take(extent, self.chance.choice([0, 1, None]))
            self.foresee(within=0)
            return
        if what == "fail":
            for member in self.world:  # somewhere in the middle of the step
                member.take(extent, self.chance.choice([0, 1, None]))
            self.fail(completed=[])
            return
        self.attempt(extent)
        if what == "split":  # the death was seen by some only after their step was complete
            self.fail(completed=self.world[: self.chance.randint(1, len(self.world))])
            return
        for member in self.world:
            member.session.complete()

    def attempt(self, extent: Extent) -> None:
        taken = [member.take(extent) for member in self.world]
        size = len(self.world)
        for rank, batches in enumerate(taken):
            assert {batch.issued.seat for batch in batches} == {Seat(self.generation, rank, size)}
        used = [index for batches in taken for batch in batches for index in batch.indices]
        assert tuple(used) == self.order(extent.epoch, extent.start, extent.stop)
        total = sum(batch.weight for batches in taken for batch in batches)
        assert abs(total - size) < 1e-9
        self.ledger += [(extent.epoch, index) for index in used]
        self.cursor = extent.after

    def reshaped(self, members: list[Member]) -> list[Member | None]:
        kept = self.chance.sample(members, self.chance.randint(1, len(members)))
        return [*kept, *[None] * self.chance.randint(0, 3 - len(kept))]

    def foresee(self, within: int = 6) -> None:
        """A planned resize, a few steps ahead: sometimes beyond what is loaded, sometimes not."""
        self.withdraw()
        step = self.cursor.step + self.chance.randint(min(within, 1), within)
        world = self.reshaped(self.world)
        self.planned = (step, world)
        for rank, member in enumerate(world):
            if member:
                seat = Seat(self.generation + 1, rank, len(world))
                assert member.session.schedule.foresee(step, seat)

    def withdraw(self) -> None:
        for member in self.world:
            member.session.schedule.withdraw(self.generation + 1)
        self.planned = None

    def switch_if_due(self) -> None:
        if self.planned and self.planned[0] == self.cursor.step:
            self.become(self.planned[1])

    def fail(self, completed: list[Member]) -> None:
        survivors = [member for member in self.world if self.chance.random() < 0.7]
        survivors = survivors or self.world[:1]
        for member in completed:
            member.session.complete()
        world = self.reshaped(survivors)
        self.become(world)
        for rank, member in enumerate(world):
            if member:
                self.resettle(member.session, Seat(self.generation, rank, len(world)))
                if completed:  # those ahead have begun the next epoch when they give their state
                    member.session.receive(self.plan.rolled(self.cursor))

    def resettle(self, session: FakeSession, seat: Seat) -> None:
        """The new world is known at once, or only at the boundary; until then the step is void."""
        if self.chance.random() < 0.5:
            session.schedule.replace(seat)
        else:
            session.void = True
            session.due.append(lambda: session.schedule.replace(seat))

    def become(self, world: list[Member | None]) -> None:
        self.generation += 1
        self.planned = None
        members = [member or self.newcomer(rank, len(world)) for rank, member in enumerate(world)]
        for member in self.world:
            if member not in members:
                member.close()
        self.world = members

    def close(self) -> None:
        for member in self.world:
            member.close()
