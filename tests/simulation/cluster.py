"""One simulated job from start to end: machines, network, store, coordinator, and faults."""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from midflight.coordinator.core.formation import STALL_LIMIT
from midflight.coordinator.core.state import OVER
from midflight.coordinator.saved_state import Saving
from midflight.protocol.job import JobSpec
from midflight.runtime.data.plan import Plan
from tests.simulation.faults import (
    FATAL,
    PATIENT,
    SHORT_TIMEOUT,
    Fault,
    Strikes,
    choose,
)
from tests.simulation.group import Fabric
from tests.simulation.head import PORT, Keeper
from tests.simulation.last_moments import choose_last_moment
from tests.simulation.loop import START, Process, SimLoop, Stalled
from tests.simulation.machines import Host, installed, start_training
from tests.simulation.member import SECRET, Script, Training
from tests.simulation.network import Network
from tests.simulation.plain import Habits, Rendezvous, choose_habits
from tests.simulation.restarts import Restarts
from tests.simulation.store import SimStore
from tests.simulation.witness import Witness, expected_weights

GO_ON_SECONDS = 60.0  # after the faults: by then a step must be made
END_SECONDS = 600.0  # after the faults: by then the job must have ended
CALM_SECONDS = 12.0  # after a fault: so long it may still have consequences


@dataclass(frozen=True)
class Setup:
    """What a seed decides besides the faults."""

    slots: tuple[int, ...]  # of each host
    spec: JobSpec
    script: Script
    latency: float


@dataclass(frozen=True)
class Outcome:
    findings: tuple[str, ...]
    story: tuple[tuple[float, str], ...]
    events: int
    code: int | None  # of the job
    seconds: float  # simulated
    excused: bool  # all who held the state were killed


def choose_setup(rng: random.Random) -> Setup:
    slots = tuple(rng.randint(1, 3) for _ in range(rng.randint(2, 4)))
    np = rng.randint(1, min(sum(slots), 5))
    batch = rng.randint(4, 9)
    step_seconds = rng.choice((0.05, 0.2, 0.5, 1.5, 3.0))
    steps = min(int(30 / step_seconds), 120)
    plan = Plan(samples=batch * steps // 2 + rng.randrange(batch), global_batch_size=batch)
    script = Script(
        plan=plan,
        epochs=2,
        step_seconds=step_seconds,
        startup_seconds=rng.choice((0.2, 1.0, 3.0)),
        transfer_seconds=rng.choice((0.0, 0.1, 1.0, 8.0)),
        prefetched=rng.choice((0, 0, 2, 8)),
    )
    spec = JobSpec(
        name="job",
        command=("python", "train.py"),
        np=np,
        min_np=rng.randint(1, np),
        max_np=sum(slots),
        elastic_timeout=90.0,
        start_timeout=10.0,
        cooldown_min=1.0,
        cooldown_max=4.0,
        grace=10.0,
    )
    return Setup(slots, spec, script, rng.choice((0.0002, 0.002, 0.03)))


class Cluster:
    def __init__(self, seed: int, faults: list[Fault] | None = None) -> None:
        rng = random.Random(seed)
        setup = choose_setup(rng)
        habits = random.Random(f"{seed} script")
        self.habits: Habits | None = choose_habits(habits)
        chosen = choose(rng, random.Random(f"{seed} more"), random.Random(f"{seed} frames"))
        if self.habits is not None and (last := choose_last_moment(habits)) is not None:
            chosen.append(Fault(0.0, *last, seconds=0.0))
        self.faults = chosen if faults is None else faults
        self.loop = SimLoop()
        tails = random.Random(f"{seed} tail").choice((0.0, 0.0, 2.5 * setup.spec.grace))
        self.spec, self.script = setup.spec, replace(setup.script, tail_seconds=tails)
        if any(fault.kind in PATIENT for fault in self.faults):
            self.spec = replace(self.spec, elastic_timeout=SHORT_TIMEOUT)
        if self.habits is not None:
            self.spec = _ruled_by(self.habits, self.spec)
        self.address = f"head:{PORT}"
        self.network = Network(self.loop, random.Random(f"{seed} network"), setup.latency)
        self.loop.network = self.network
        delays = random.Random(f"{seed} store")
        self.loop.call_delay = lambda: (0.02 * delays.random(), 0.1 * delays.random() ** 4)
        self.fabric = Fabric(
            self.network,
            random.Random(f"{seed} groups"),
            setup.script.transfer_seconds,
            lambda name: self.trainings[name].has_moved(),
        )
        self.store = SimStore()
        expected = expected_weights(setup.script.plan, setup.script.epochs)
        self.steps_wanted = len(expected) - 1
        self.witness = Witness(lambda: self.loop.now, expected)
        self.witness.is_well = self._is_well
        self.witness.step_seconds = setup.script.step_seconds
        self.hosts = [Host(self, f"h{n}", slots) for n, slots in enumerate(setup.slots)]
        self.members: dict[int, Process] = {}
        self.processes: dict[str, Process] = {}  # the same, by name
        self.trainings: dict[str, Training] = {}
        self.rendezvous = Rendezvous(self)
        self.restarts = Restarts(self)
        if self.habits is not None:
            self.witness.also = self.restarts.decided
            self.witness.numbers_count = False
        self.felled: set[str] = set()  # members that a fault has ended
        self.deaths: list[str] = []  # of any process, by a fault
        self.clients: list[Process] = []
        self.keeper: Keeper
        self.newcomers_differ = False  # their scripts ask for other data
        self.unpackable = False  # the scripts have put something into job.state that cannot travel
        self.is_late = False  # the first member to be at its end is not done yet
        self.over = False
        self.excused = False
        self.patience = GO_ON_SECONDS
        self.wishes = 0  # for another size: requests, and notices
        self.wished_at = 0.0  # the last of them
        self.asked: list[int] = []  # sizes, but for those that were refused
        self.stopped = False  # by somebody
        self.wanted_still: int | None = None  # after a request that was refused
        self._troubled: dict[str, int] = {}  # hosts and processes, and how many faults last
        self._troubled_at: dict[str, float] = {}
        self._silent_at: dict[str, float] = {}

    def describe(self) -> str:
        spec, script = self.spec, self.script
        return self._describe_rules() + (
            f"hosts with {' '.join(str(h.slots) for h in self.hosts)} slots, -np {spec.np}, "
            f"--min-np {spec.min_np}, steps of {script.step_seconds:g} s, the state takes "
            f"{script.transfer_seconds:g} s, {script.prefetched} steps are loaded ahead"
        )

    def _describe_rules(self) -> str:
        return "" if self.habits is None else f"a script without Midflight, {self.habits}, "

    # --- the operating system -------------------------------------------------------------------

    def start_member(self, environment: Mapping[str, str], host: str) -> Process:
        process = start_training(self, environment, host)
        self._check_slot(process, environment)
        self.members[process.pid] = self.processes[process.name] = process
        process.on_end.append(lambda _: self._notice_over(host))
        return process

    def _check_slot(self, process: Process, environment: Mapping[str, str]) -> None:
        """Whoever had the slot before has ended."""
        process.slot = environment["MIDFLIGHT_SLOT"]
        for other in self.processes_on(process.host):
            if other.slot == process.slot:
                self.witness.find(f"{process.name} is started beside {other.name} in one slot")

    def _notice_over(self, host: str) -> None:
        """An agent whose notice is over ends its members; the time was too short, perhaps."""
        shell = self.keeper.shell
        going_on = shell is not None and shell.state.phase not in OVER
        if going_on and any(h.left for h in self.hosts if h.name == host):
            self.count_holders()

    def kill(self, pid: int) -> None:
        self.members[pid].end(-9)

    def terminate(self, pid: int) -> None:
        self.members[pid].terminate()

    def probe(self, pid: int) -> str:
        process = self.members[pid]
        if not process.alive:
            return "gone"
        return "stopped" if process.stopped else "running"

    def processes_on(self, host: str) -> list[Process]:
        agents = [h.agent for h in self.hosts if h.agent is not None]
        return [p for p in (*agents, *self.members.values()) if p.host == host and p.alive]

    @property
    def wanted(self) -> int | None:
        """The size that the coordinator wants the job to have, if there is one."""
        return None if self.keeper.shell is None else self.keeper.shell.state.wanted

    def wish(self) -> None:
        """Somebody wants another size."""
        self.wishes += 1
        self.wished_at = self.loop.now

    # --- who is disturbed by faults -------------------------------------------------------------

    def disturb(self, *names: str) -> None:
        for name in names:
            self._troubled_at[name] = self.loop.now

    @contextmanager
    def disturbed(self, *names: str) -> Iterator[None]:
        for name in names:
            self._troubled[name] = self._troubled.get(name, 0) + 1
        try:
            yield
        finally:
            for name in names:
                self._troubled[name] -= 1
            self.disturb(*names)
            self.silence(*names)

    def silence(self, *names: str) -> None:
        """They may not have been heard for a while."""
        for name in names:
            self._silent_at[name] = self.loop.now

    def was_silent(self, *names: str) -> bool:
        """Whether that was so lately, for any of them."""
        ago = (self.loop.now - self._silent_at.get(name, 0.0) for name in names)
        return min(ago) <= CALM_SECONDS or any(self._troubled.get(name) for name in names)

    def is_calm(self, *names: str) -> bool:
        """Whether no fault has concerned any of these lately."""
        return all(map(self._is_calm, names))

    def _is_calm(self, name: str) -> bool:
        long_ago = self.loop.now - self._troubled_at.get(name, 0.0) > CALM_SECONDS
        return long_ago and not self._troubled.get(name)

    def _is_well(self, member: str) -> bool:
        """Whether a member's process runs, and nothing has kept it from being heard lately."""
        process = self.processes.get(member)
        if process is None or not process.alive or process.stopped:
            return False
        host = process.host
        return self.is_calm(member, host, f"agent {host}", "head", "coordinator")

    def count_holders(self) -> None:
        """After a death: a job of which nobody is left who holds the state may fail."""
        holders = [t for t in self.trainings.values() if t.holds_state]
        if holders and not any(t.process.alive and self._can_go_on(t) for t in holders):
            self.excused = True

    def _count_slots(self) -> None:
        """A job that has lost too many hosts for good may fail, too."""
        there = [h for h in self.hosts if h.name not in self.network.lost and not h.left]
        if sum(host.slots for host in there) < self.spec.min_np:
            self.excused = True

    def _can_go_on(self, training: Training) -> bool:
        process = training.process
        reachable = self.network.reachable("head", process.host) and not process.told_to_end
        reachable = reachable and not self._is_left_behind(training)
        return reachable and self.is_calm(process.name, process.host)

    def _is_left_behind(self, training: Training) -> bool:
        """Others have gone on to a world without it, and may have completed a step there."""
        name, generation = training.env.member, training.group.generation
        newer = (t.group.world for t in self.trainings.values() if t.group.generation > generation)
        return training.has_left or any(name not in world for world in newer)

    def lose_end(self) -> None:
        """The agents were told of the end, but the store never was: nobody knows how it was."""
        if self.habits is not None:
            self.excused = True
            self.patience += self.spec.elastic_timeout

    def check_memory(self) -> None:
        """What a coordinator keeps for a store that is away does not grow."""
        for name, held in vars(self.keeper.saving or self).items():
            if self.keeper.saving and isinstance(held, list | tuple | dict | set) and len(held) > 4:
                self.witness.find(f"{len(held)} {name} are kept for the store")

    # --- from start to end ----------------------------------------------------------------------

    def run(self) -> Outcome:
        code: int | None = None
        asyncio.set_event_loop(self.loop)
        try:
            with installed(self):
                try:
                    code = self.loop.run_until_complete(self._run())
                except Stalled as error:
                    self.witness.find(str(error))
                finally:
                    self._end()
        finally:
            asyncio.set_event_loop(None)
        return Outcome(
            tuple(self.witness.findings),
            tuple(self.witness.story),
            self.loop.events,
            code,
            self.loop.now,
            self.excused,
        )

    def _end(self) -> None:
        for process in (*self.members.values(), *self.clients, self.keeper.process):
            if process is not None:
                process.end(-9)
        for host in self.hosts:
            if host.agent is not None:
                host.agent.end(-9)
        self.loop.end()

    async def _run(self) -> int | None:
        self.keeper = Keeper(self)
        job = self.loop.create_task(self.keeper.keep())
        if self.habits is not None:
            watch = self.loop.create_task(self.restarts.watch())
            job.add_done_callback(lambda _: watch.cancel())
        keepers = [self.loop.create_task(host.keep()) for host in self.hosts]
        strikes = Strikes(self)
        struck = [self.loop.create_task(strikes.strike(fault)) for fault in self.faults]
        code = await self._until_over(job, struck)
        for task in (*keepers, *struck):
            task.cancel()
        return code

    async def _until_over(
        self, job: "asyncio.Task[int]", struck: list["asyncio.Task[None]"]
    ) -> int | None:
        if struck:
            ends = [job, asyncio.ensure_future(_all(struck))]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        began = self.loop.now
        while not job.done() and self.loop.now - began < END_SECONDS:
            await asyncio.wait([job], timeout=1.0)
            self._count_slots()
            still = self.loop.now - max(began, self.witness.moved_at)
            if still > self.patience and not self.is_complete and not self.excused:
                self.witness.find(f"no step for {self.patience:g} s after the faults")
                break
        self.over = True
        self._check_end(job)
        return job.result() if job.done() and not job.exception() else None

    @property
    def is_complete(self) -> bool:
        return self.witness.steps + 1 >= len(expected_weights(self.script.plan, self.script.epochs))

    def _check_end(self, job: "asyncio.Task[int]") -> None:
        witness = self.witness
        for name, error in self.loop.raised:
            witness.find(f"{name} raised {type(error).__name__}: {error}")
        if not job.done():
            witness.find(f"the job has not ended {END_SECONDS:g} s after the faults")
            return
        if (failure := job.exception()) is not None:
            witness.find(f"the launcher gave up: {failure}")
            return
        witness.say(f"the job ends with {job.result()} after {witness.steps} steps")
        in_vain = witness.notice_in_vain or self._is_without_fitting_newcomers
        excused = self.excused or in_vain or self._is_end_unheard
        if self.habits is not None:
            self._check_restarted(job.result())
            excused = excused or self.restarts.may_fail()
        if job.result() != 0 and not excused and not self.stopped:
            witness.find(f"the job fails with {job.result()} although its state was held")
        finished = any(fault.kind == "late_end" for fault in self.faults)
        if self.wanted not in (None, self.spec.np, *self.asked) and not finished:
            witness.find(f"{self.wanted} members are wanted, and nobody was promised so many")
        if self.wishes == 1 and self.wanted_still not in (None, self.wanted):
            wanted = f"{self.wanted} members are wanted, where {self.wanted_still} were before"
            witness.find(f"a resize was said not to be done, and {wanted}")
        if job.result() == 0 and self.habits is None:
            self._check_last_step()
        if job.result() == 0 and not self.is_complete and not self.stopped:
            witness.find(f"the job succeeds after {witness.steps} steps, which are not all")

    def _check_last_step(self) -> None:
        """Members that somebody stops wait for nobody who would hear of it."""
        if self.stopped:
            return
        self.store.away = False  # the job may have ended meanwhile
        saved = Saving(self.store, self.spec.name, SECRET).load(self.loop.now)
        if saved is not None and saved.best_step != self.witness.steps:
            self.witness.find(f"{saved.best_step} steps are saved after {self.witness.steps}")

    def _check_restarted(self, code: int) -> None:
        self.restarts.check_count()
        if code == 0 and not self.stopped:
            self.restarts.check_success()

    @property
    def _is_without_fitting_newcomers(self) -> bool:
        """Too few are left, and whoever joins them asks for other data."""
        shell = self.keeper.shell
        return self.witness.unfit > 0 and shell is not None and shell.state.stalls >= STALL_LIMIT

    @property
    def _is_end_unheard(self) -> bool:
        """A host that is silent for long at the very end takes the exit codes along.

        And a script that has finished training ends at a signal, as any other does.
        """
        lately_from = self.loop.now - START - CALM_SECONDS - self.script.tail_seconds
        lately = [f for f in self.faults if f.until > lately_from]
        deadly = (*FATAL, "notice_member") if self.script.tail_seconds else FATAL
        return self.is_complete and any(
            fault.kind in deadly or fault.seconds > self.spec.grace / 2 for fault in lately
        )


def _ruled_by(habits: Habits, spec: JobSpec) -> JobSpec:
    dialect = habits.dialect
    if dialect.max_restarts is None:
        return replace(spec, dialect=dialect)
    limit = dialect.max_restarts
    return replace(spec, dialect=dialect, reset_limit=limit, cooldown_min=0.0, cooldown_max=0.0)


async def _all(tasks: list["asyncio.Task[None]"]) -> None:
    await asyncio.gather(*tasks)
