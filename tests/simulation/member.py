"""A training process: the real membership, driver, claims, plan and schedule; training is a sum.

The real driver takes it from world to world. In a step, and when a world is entered, it does what
`runtime.session` and `runtime.job` do, with `await` where they block. Its weights are a number that
every sample of every step goes into, so a sample that is lost or used twice is seen at once.
"""

import asyncio
import random
import zlib
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from midflight.errors import GivenUp, WorldChanged
from midflight.protocol import messages as say
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.world import Member, World
from midflight.runtime.data.plan import Cursor, Plan, Seat
from midflight.runtime.data.schedule import Schedule
from midflight.runtime.membership.driver import Driver
from midflight.runtime.membership.link import Link
from midflight.runtime.membership.member import Enter, Membership
from midflight.runtime.state.claims import NEWCOMER, Claim, settle
from midflight.runtime.state.relay import relay
from tests.simulation.coming import SimComing
from tests.simulation.group import Fabric, SimGroup
from tests.simulation.link import SimLink
from tests.simulation.loop import Process
from tests.simulation.witness import Intervals, Witness, fold, joined

SECRET = b"the secret of the simulated job"


@dataclass(frozen=True)
class Script:
    """What every member runs, and how long things take, in seconds."""

    plan: Plan
    epochs: int
    step_seconds: float
    startup_seconds: float
    transfer_seconds: float
    prefetched: int  # steps for which data is loaded ahead


class SimMembership(Membership):
    """The real one, on a simulated link."""

    def __init__(self, env: WorkerEnv, training: "Training") -> None:
        self._training = training
        make: Any = training.make_coming
        trainer: Any = training
        super().__init__(env, SECRET, "gloo", trainer, make)

    def _make_link(self, env: WorkerEnv, secret: bytes) -> Link:
        link: Any = SimLink(env, secret, self)
        return link  # type: ignore[no-any-return]

    def greeting(self) -> say.MemberJoined:
        return replace(super().greeting(), pid=self._training.process.pid)

    def beat(self) -> say.Beat:
        return replace(super().beat(), moved=self._training.moved)

    def hear(self, message: object) -> None:
        if isinstance(message, say.Form | say.Prepare | say.Switch):
            self._training.witness.announced(message.world)
        super().hear(message)
        self._training.news.set()

    def say_settled(self, generation: int) -> None:
        super().say_settled(generation)
        self._training.has_left = generation > self._training.group.generation

    def give_up(self, reason: str) -> None:
        super().give_up(reason)
        self._training.news.set()

    async def _wait_for_news(self, seconds: float | None) -> bool:
        self._training.news.clear()
        try:
            async with asyncio.timeout(seconds):
                return await self._training.news.wait()
        except TimeoutError:
            return False


class _Holdings:
    fingerprint = "the model"


class Training:
    holdings = _Holdings()
    backends = ("gloo",)

    def __init__(
        self, env: WorkerEnv, process: Process, script: Script, fabric: Fabric, witness: Witness
    ) -> None:
        self.env = env
        self.process = process
        self.witness = witness
        self._script = script
        self._plan = script.plan
        self._fabric = fabric
        self._rng = random.Random(f"{env.member} {fabric.rng.random()}")
        self.cursor = Cursor()
        self.weights = 0
        self.value = 0  # of job.state, set by the script
        self._next_value: int | None = None
        self.holds_state = False
        self.has_left = False  # a world that goes on without this member
        self.waiting = False
        self.moved = 0
        self.news = asyncio.Event()
        self._trained_in = 0
        self._schedule = Schedule(Seat(0, 0, 1))
        self._layout_wanted = False
        self._layout_made = asyncio.Event()
        self._membership = SimMembership(env, self)
        alone = World(0, (Member(env.member, env.host, env.slot, env.address),))
        nowhere: Any = SimGroup(fabric, process, alone, env.member)
        trainer: Any = self
        self._driver = Driver(trainer, nowhere, self._membership)

    # --- what the membership asks -------------------------------------------------------------

    @property
    def group(self) -> SimGroup:
        group: Any = self._driver.group
        return group  # type: ignore[no-any-return]

    @property
    def steps_done(self) -> int:
        return self.cursor.step

    @property
    def horizon(self) -> int:
        return self.cursor.step + self._script.prefetched

    def ask_for_layout(self) -> None:
        self._layout_made.clear()
        self._layout_wanted = True

    async def layout_made(self) -> None:
        await self._layout_made.wait()

    def foresee(self, step: int, world: World) -> None:
        if self.holds_state:
            rank = world.rank(self.env.member)
            self._schedule.foresee(step, Seat(world.generation, rank, world.size))

    def make_coming(
        self, world: World, name: str, backend: str, joiners: tuple[str, ...]
    ) -> SimComing:
        return SimComing(SimGroup(self._fabric, self.process, world, name), joiners)

    # --- the script ---------------------------------------------------------------------------

    async def run(self) -> int:
        """The exit code."""
        await self._pass(self._script.startup_seconds)
        if self.env.joiner:
            await self._pass(self._script.step_seconds)  # the rehearsal
        membership = self._membership
        self.process.on_terminate = lambda: membership.leave_on_notice(self.env.grace)
        membership.link.start()
        try:
            await self._driver.settle()
            while not self._plan.complete(self.cursor, self._script.epochs):
                self.cursor = self._plan.rolled(self.cursor)
                await self._boundary()
                if not self._plan.ended(self.cursor):
                    await self._step()
            await self._driver.finish(stay=True)
            return 0
        except SystemExit:
            return 0
        except GivenUp as error:
            self.witness.say(f"{self.env.member} gives up: {error}")
            if "nobody is there to take over" in str(error):
                self.witness.notice_in_vain = True
            return 1
        finally:
            membership.link.close()
            self.group.cut()

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._rng.uniform(0.8, 1.2))

    async def _boundary(self) -> None:
        if self._layout_wanted and self.holds_state:
            self._layout_wanted = False
            self._layout_made.set()
        if self._driver.is_due():
            await self._driver.settle()

    # --- entering a world -----------------------------------------------------------------------

    def dismissed(self) -> None:
        """It ends by SystemExit."""

    async def enter(self, order: Enter) -> None:
        group: Any = order.coming.group
        newcomer = not self.holds_state
        received = await self._agree(group)
        if not order.planned or newcomer or received:
            self._schedule.replace(Seat(group.generation, group.rank, group.size))
        self.holds_state = True

    def _claim(self, rank: int) -> Claim:
        if not self.holds_state:
            return replace(NEWCOMER, can_give=rank == 0)
        cursor = self.cursor
        return Claim(
            self._trained_in, cursor.step, cursor.epoch, self._digest(), self.weights, True
        )

    def _digest(self) -> int:
        """Of what is no tensor."""
        return zlib.crc32(f"{self.cursor} {self.value}".encode())

    def differ(self, value: int) -> None:
        """In its next step the script does on this member what it does not do on the others."""
        self._next_value = value

    async def _agree(self, group: SimGroup) -> bool:
        """Whether this member has received the state."""
        if group.size == 1:
            return False
        answers = await group.gather(self._claim(group.rank).to_numbers())
        outcome = settle([Claim.from_numbers(numbers) for numbers in answers])
        mine = (self.cursor, self.weights, self._trained_in, self.value)
        received = None
        for source, target in chain.from_iterable(relay(outcome.givers, outcome.receivers)):
            if group.rank in (source, target):
                state = await group.transfer(
                    f"{source} to {target}",
                    (source, target),
                    received or mine,
                    self._script.transfer_seconds,
                    self._has_moved,
                )
                if group.rank == target:
                    received = state[0]
        if received is not None:
            self.cursor, self.weights, self._trained_in, self.value = received
        return received is not None

    def _has_moved(self) -> None:
        self.moved += 1

    # --- a step -----------------------------------------------------------------------------------

    async def _step(self) -> None:
        group = self.group
        seat = self._schedule.at(self.cursor.step)
        if group.is_cut or seat.generation != group.generation:
            await asyncio.sleep(0.001)  # the feed has nothing for this world
            return
        if self._next_value is not None:
            self.value, self._next_value = self._next_value, None
            self.witness.differing.add(group.generation)
        extent = self._plan.extent_at(self.cursor)
        pieces = self._plan.pieces(extent, seat.rank, seat.size)
        own: Intervals = tuple((piece.start, piece.stop) for piece in pieces if piece.weight)
        await self._pass(self._script.step_seconds)
        self.waiting = True
        try:
            answers = await group.gather((own, (self.cursor.step, self.weights), self.value))
        except WorldChanged as error:
            self._driver.broke(error)
            return
        finally:
            self.waiting = False
        self.witness.equal(self.env.member, [claim for _, claim, _ in answers])
        self.witness.same_values(group.generation, [value for _, _, value in answers])
        used = joined([part for part, _, _ in answers])
        self.weights = fold(self.weights, extent, used)
        self.cursor = extent.after
        self._trained_in = group.generation
        self._driver.let_go()
        self.witness.completed(self.env.member, group.generation, self.cursor.step, self.weights)
