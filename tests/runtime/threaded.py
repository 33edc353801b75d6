"""Whole elastic jobs in threads of this process: real sessions, groups, gradients and transfers.

Only the coordinator is missing: `Story` says what it would. Two members train; at one step a third
joins them; in a later one the second dies in the middle of it, and the other two train to the end.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import midflight as mf
from midflight.protocol.world import Member, World
from midflight.runtime.data.plan import Seat
from midflight.runtime.group import process_group as groups
from midflight.runtime.group.process_group import Group
from midflight.runtime.membership.member import Enter, Order
from midflight.runtime.membership.next_world import Coming
from tests.runtime.handing import together
from tests.runtime.keys import Keys

GROWS, DIES, STEPS = 2, 4, 7  # the steps in which it happens, and how many there are
WORLDS = {1: ("m0", "m1"), 2: ("m0", "m1", "m2"), 3: ("m0", "m2")}
BATCH = 12
Train = Callable[[mf.Job, "Story", str], Any]


class Story:
    def __init__(self) -> None:
        self._keys = {generation: Keys() for generation in WORLDS}
        self._lock = threading.Lock()
        self._groups: list[Group] = []
        self.dead = threading.Event()

    def coming(self, generation: int, name: str, session: Any) -> Coming:
        """That member's part in a world, on its way."""
        members = (
            Member(n, "here", slot, "127.0.0.1") for slot, n in enumerate(WORLDS[generation])
        )
        coming = Coming(World(generation, tuple(members)), name, "gloo", ())
        with self._lock:
            self._groups.append(coming.group)
        coming.start(self._keys[generation], session, lambda *_: None)
        return coming

    def dies_in(self, job: mf.Job, name: str) -> bool:
        """Whether this member is gone now; and the coordinator ends its world for all."""
        if name != "m1" or job.step_number != DIES:
            return False
        self.dead.set()
        self.cut()
        return True

    def cut(self) -> None:
        with self._lock:
            for group in self._groups:
                group.cut()


class ToldMembership:
    """What the coordinator orders a member to do."""

    def __init__(self, story: Story, name: str, session: Any) -> None:
        self._story, self._name, self._session = story, name, session
        self._generation = 0
        self.link = self

    def _next(self, step: int) -> int:
        if self._generation >= 2 and self._story.dead.is_set():
            return 3
        if self._generation < 2 and (step >= GROWS or self._name == "m2"):
            return 2
        return max(self._generation, 1)

    @property
    def due(self) -> bool:
        return self._generation == 0

    def begin_step(self, step: int) -> bool:
        return self._next(step) == self._generation

    async def next_order(self, step: int, *, idle: bool = False) -> Order | None:
        generation = self._next(step)
        if generation == self._generation:
            return None
        self._generation = generation
        if generation == 1:
            seat = Seat(2, WORLDS[2].index(self._name), len(WORLDS[2]))
            self._session.schedule.foresee(GROWS, seat)
        return Enter(self._story.coming(generation, self._name, self._session), generation == 2)

    def now(self) -> float:
        return time.monotonic()

    def send(self, message: object) -> bool:
        return True

    def broke(self, group: Group, step: int, error: str) -> None: ...
    def entered(self, group: Group) -> None: ...
    def close(self) -> None: ...


def run(join: Callable[[], mf.Job], train: Train) -> list[Any]:
    """What `train` returns for each of those who are there at the end."""
    story = Story()
    jobs = {name: join() for name in WORLDS[2]}  # one by one: all threads share one seed

    def member(name: str) -> Any:
        job = jobs[name]
        job._session.driver.membership = ToldMembership(story, name, job._session)  # type: ignore[assignment]
        try:
            return train(job, story, name)
        except BaseException:
            story.cut()
            raise
        finally:
            job._session._close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "BUILDING_SECONDS", 0.0)  # in one process they wait for each other
        try:
            results = together(*(lambda n=n: member(n) for n in WORLDS[2]))
        finally:
            story.cut()
    return [result for name, result in zip(WORLDS[2], results, strict=True) if name in WORLDS[3]]
