"""A training process: the real membership, driver, agreement, holdings, plan and schedule.

The real driver takes it from world to world, and in each the real agreement settles the state. In
a step it does what `runtime.session` and `runtime.job` do, with `await` where they block. Training
is a sum: the weights are a number that every sample of every step goes into, so a sample that is
lost or used twice is seen at once.
"""

import asyncio
import random
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from midflight.errors import DataError, GivenUp, StateError, WorldChanged
from midflight.protocol import messages as say
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.world import Member, World
from midflight.runtime.data.plan import Cursor, Plan, Seat
from midflight.runtime.data.schedule import Schedule
from midflight.runtime.membership.driver import Driver
from midflight.runtime.membership.link import Link
from midflight.runtime.membership.member import Enter, Membership
from midflight.runtime.session import POLL_SECONDS
from midflight.runtime.state.agreement import Standpoint, agree, compare_terms, try_capture
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout, Snapshot
from midflight.runtime.state.terms import Terms
from tests.simulation import blocking
from tests.simulation.coming import SimComing
from tests.simulation.group import SimGroup
from tests.simulation.link import SimLink
from tests.simulation.loop import Process
from tests.simulation.witness import Intervals, fold, joined, rounded

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

T = TypeVar("T")
BUSY_SECONDS = 0.001
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
    tail_seconds: float = 0.0  # after training


class SimMembership(Membership):
    """The real one, on a simulated link."""

    def __init__(self, env: WorkerEnv, training: "Training") -> None:
        self._training = training
        trainer: Any = training
        super().__init__(env, SECRET, training.backends[0], trainer, SimComing)

    def _make_link(self, env: WorkerEnv, secret: bytes) -> Link:
        link: Any = SimLink(env, secret, self)
        return link  # type: ignore[no-any-return]

    def greeting(self) -> say.MemberJoined:
        return replace(super().greeting(), pid=self._training.process.pid)

    def beat(self) -> say.Beat:
        return replace(super().beat(), moved=self._training.moved)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

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


class Training:
    def __init__(self, env: WorkerEnv, process: Process, cluster: "Cluster") -> None:
        self.env = env
        self.process = process
        self.witness = cluster.witness
        self._cluster = cluster
        self.backends = ("gloo", "nccl") if env.host in ("h0", "h2") else ("nccl", "gloo")
        self._script = script = cluster.script
        self._plan = script.plan
        if env.joiner and cluster.newcomers_differ:
            self._plan = replace(script.plan, global_batch_size=script.plan.global_batch_size + 1)
        self._fabric = fabric = cluster.fabric
        self._rng = random.Random(f"{env.member} {fabric.rng.random()}")
        self.cursor = Cursor()
        self.values = {"weights": 0, "rounding": 0, "best": 0}  # job.state
        self.holdings = Holdings({}, self.values)
        self.plan: Mapping[str, Any] | None = None  # of the data, once the script has asked for it
        self._same_plan = True
        self._next_best: int | None = None
        self.busy_from: int | None = None  # at this step the script does something else for a while
        self.holds_state = False
        self.has_left = False  # a world that goes on without this member
        self.waiting = False
        self.samples_done = 0
        self.moved = 0
        self.news = asyncio.Event()
        self._trained_in = 0
        self._schedule = Schedule(Seat(0, 0, 1))
        self._layout_wanted = False
        self._layout_made = blocking.Event()
        self._layout: Layout | StateError | None = None
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
    def entering(self) -> SimGroup | None:
        """The group of the world that it is on its way into."""
        coming = self._membership._entering
        group: Any = coming.group if coming is not None else None
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

    def layout(self, group: SimGroup) -> Layout:
        while not self._layout_made.wait(POLL_SECONDS):
            if group.is_cut:
                raise WorldChanged("the training thread did not reach a step boundary in time")
        assert self._layout is not None
        if isinstance(self._layout, StateError):
            raise self._layout
        return self._layout

    def terms(self) -> Terms:
        return Terms(plan=self.plan, epoch=self.cursor.epoch)

    def foresee(self, step: int, world: World) -> None:
        if self.holds_state:
            rank = world.rank(self.env.member)
            self._schedule.foresee(step, Seat(world.generation, rank, world.size))

    # --- the script ---------------------------------------------------------------------------

    async def run(self) -> int:
        """The exit code."""
        await self._pass(self._script.startup_seconds)
        if self.env.joiner:
            self._ask_for_data()
            await self._pass(self._script.step_seconds)  # the rehearsal
        membership = self._membership
        self.process.on_terminate = lambda: membership.leave_on_notice(self.env.grace)
        membership.link.start()
        try:
            await self._driver.settle()
            self._ask_for_data()
            while not self._plan.complete(self.cursor, self._script.epochs):
                self.cursor = self._plan.rolled(self.cursor)
                await self._boundary()
                if not self._plan.ended(self.cursor):
                    await self._step()
            if self._cluster.is_late:
                self._cluster.is_late = False
                await self._pass(3 * self.env.elastic_timeout)
            await self._driver.finish(stay=True)
            membership.link.close()
            self.process.on_terminate = None  # as it is for every process
            await asyncio.sleep(self._script.tail_seconds)
            return 0
        except SystemExit:
            return 0
        except GivenUp as error:
            self.witness.say(f"{self.env.member} gives up: {error}")
            if "no member can take over" in str(error):
                self.witness.notice_in_vain = True
            return 1
        except (StateError, DataError) as error:
            self.witness.say(f"the script of {self.env.member} ends: {error}")
            self.witness.unfit += self._cluster.newcomers_differ
            membership.link.send(say.MemberFailed(str(error), type(error).__name__))
            return 1
        finally:
            membership.link.close()
            self.group.cut()

    def _ask_for_data(self) -> None:
        self.plan = {**self._plan.in_common(), "epochs": self._script.epochs}

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._rng.uniform(0.8, 1.2))

    async def _boundary(self) -> None:
        while self.busy_from is not None and self.cursor.step >= self.busy_from:  # noqa: ASYNC110
            await asyncio.sleep(BUSY_SECONDS)
        if self._layout_wanted and self.holds_state:
            self._layout_wanted = False
            captured = try_capture(self.capture)
            self._layout = captured if isinstance(captured, StateError) else captured.layout
            self._layout_made.set()
        if self._driver.is_due():
            await self._driver.settle()

    # --- entering a world -----------------------------------------------------------------------

    def dismissed(self) -> None:
        """It ends by SystemExit."""

    async def enter(self, order: Enter) -> None:
        group, prepared = order.coming.group, order.coming.prepared
        newcomer = not self.holds_state
        mine = Standpoint(None if newcomer else self._progress, self.capture)
        if self._cluster.unpackable:  # and cannot be compared
            self.witness.differing.add(group.generation)
            self.witness.scripts_differ = True
        agreed = await blocking.run(
            lambda: agree(group, self.holdings, self.terms(), mine, prepared)
        )
        if (received := agreed.received) is not None:
            self.witness.received(self.env.member, received.differed)
            extra = self.holdings.restore(received.snapshot, rng=False)
            self.cursor = Cursor(extra["step"], extra["epoch"], extra["position"])
            self._trained_in = extra["generation"]
        self._same_plan = agreed.same_plan
        if not order.planned or newcomer or received is not None:
            self._schedule.replace(Seat(group.generation, group.rank, group.size))
        self.holds_state = True

    @property
    def _progress(self) -> tuple[int, int, int]:
        return self._trained_in, self.cursor.step, self.cursor.epoch

    def capture(self) -> Snapshot:
        if self._cluster.unpackable:
            raise StateError("job.state.writer: a value of type object cannot be handed over")
        return self.holdings.capture({**asdict(self.cursor), "generation": self._trained_in})

    def differ(self, value: int) -> None:
        """In its next step the script does on this member what it does not do on the others."""
        self._next_best = value
        self.witness.scripts_differ = True

    def has_moved(self) -> None:
        self.moved += 1

    # --- a step -----------------------------------------------------------------------------------

    async def _step(self) -> None:
        group = self.group
        seat = self._schedule.at(self.cursor.step)
        if group.is_cut or seat.generation != group.generation:
            await asyncio.sleep(0.001)  # the feed has nothing for this world
            return
        if not self._same_plan and not await self._compare_plans(group):
            return
        if self._next_best is not None:
            self.values["best"], self._next_best = self._next_best, None
            self.witness.differing.add(group.generation)
        extent = self._plan.extent_at(self.cursor)
        pieces = self._plan.pieces(extent, seat.rank, seat.size)
        own: Intervals = tuple((piece.start, piece.stop) for piece in pieces if piece.weight)
        await self._pass(self._script.step_seconds)
        weights = self.values["weights"]
        state = (self._progress, weights, group.backend, str(self.plan))
        values = self.values["best"], self.values["rounding"]
        answers = await self._together(group.meet_all((own, state, values)))
        if answers is None:
            return
        self.witness.equal(self.env.member, [state for _, state, _ in answers])
        self.witness.same_values(group.generation, [values for _, _, values in answers])
        used = joined([part for part, _, _ in answers])
        self.values["weights"] = weights = fold(weights, extent, used)
        self.values["rounding"] = rounded(self.values["rounding"], group.generation)
        self.cursor = extent.after
        self._trained_in = group.generation
        self._driver.stepped()
        self.witness.completed(self.env.member, group.generation, self.cursor.step, weights)

    async def _compare_plans(self, group: SimGroup) -> bool:
        """False if somebody was lost meanwhile; raises in a member that asks for other data."""
        real: Any = group
        compare = blocking.run(lambda: (compare_terms(real, self.terms()),))
        self._same_plan = await self._together(compare) is not None
        return self._same_plan

    async def _together(self, action: Coroutine[Any, Any, T]) -> T | None:
        """What all members do now; None if one was lost meanwhile."""
        self.waiting = True
        try:
            return await action
        except WorldChanged as error:
            self._driver.broke(error)
            return None
        finally:
            self.waiting = False
