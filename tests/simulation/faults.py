"""What can go wrong: each fault is a value, so that a list of them can be shortened.

A fault names its victim by a number that is taken modulo the candidates of its moment. To add one:
a name in `KINDS`, and a method of the same name in `Strikes`.
"""

import asyncio
import contextlib
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from midflight.coordinator.exit_codes import CRASHED
from tests.simulation.frames import Frames
from tests.simulation.group import LOOK_SECONDS
from tests.simulation.head import decide_beside, resize, stop
from tests.simulation.last_moments import LAST_MOMENTS, LastMoments
from tests.simulation.loop import Process
from tests.simulation.sequences import Sequences

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

KINDS = {  # and how often, relative to each other
    "stop_member": 4,
    "stop_agent": 2,
    "stop_coordinator": 4,
    "kill_member": 4,
    "kill_agent": 2,
    "kill_coordinator": 3,
    "kill_before_save": 4,
    "kill_at_callback": 6,
    "lose_host": 1,
    "cut_from_head": 3,
    "cut_head": 2,
    "cut_hosts": 2,
    "slow_host": 2,
    "reset_lines": 3,
    "half_open": 3,
    "break_group": 3,
    "break_at_switch": 3,
    "break_entering": 4,
    "differ": 2,
    "jump_clock": 1,
    "store_away": 3,
    "store_full": 2,
    "second_coordinator": 2,
    "other_plan": 2,
    "unpackable": 2,
    "ask_for_size": 6,
    "notice_member": 2,
    "notice_host": 1,
}
SEQUENCES = ("leaver_falls_behind", "leaver_comes_back", "break_while_printing")
SEQUENCE_SHARE = 0.25  # of all seeds has one, beside what else strikes
FRAMES = ("repeat_frame", "swap_frames", "drop_frame", "flip_bit")
FRAME_SHARE = 0.2  # of all seeds has some of these
MOST_FRAMES = 3
STOP_SHARE = 0.03  # of all seeds has somebody who stops the job
DECISIVE = ("break_group", "kill_member", "ask_for_size", "notice_member")
PATIENT = ("coordinator_away", "late_end")  # only alone, and with a short elastic timeout
SHORT_TIMEOUT = 10.0
AWAY = 2.5 * SHORT_TIMEOUT  # members notice only after a while, and then wait for the timeout
FATAL = ("kill_member", "kill_agent", "kill_at_callback", "lose_host", "notice_host")
MOST_FAULTS = 8
STRIKE_WITHIN = 25.0  # seconds
LONGEST = 12.0


@dataclass(frozen=True)
class Fault:
    at: float  # seconds after the start
    kind: str
    victim: int
    seconds: float  # how long it lasts, if it does

    @property
    def until(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        return f"{self.kind} {self.victim} at {self.at:.2f} s for {self.seconds:.2f} s"


def choose(rng: random.Random, more: random.Random, frames: random.Random) -> list[Fault]:
    """`more` decides about sequences, `frames` about frames that are changed, and about stops.

    Neither touches what else a seed does.
    """
    faults = _choose(rng)
    if any(fault.kind in PATIENT for fault in faults):
        return faults
    if more.random() < SEQUENCE_SHARE:
        at, kind = more.uniform(2.0, STRIKE_WITHIN), more.choice(SEQUENCES)
        faults.append(Fault(at, kind, more.randrange(1000), 0.0))
    if frames.random() < FRAME_SHARE:
        faults += [_change_frame(frames) for _ in range(frames.randint(1, MOST_FRAMES))]
    if frames.random() < STOP_SHARE:
        at = frames.uniform(0.5, STRIKE_WITHIN)
        faults.append(Fault(at, "ask_to_stop", frames.randrange(1000), 0.0))
    return sorted(faults, key=lambda fault: fault.at)


def _change_frame(rng: random.Random) -> Fault:
    return Fault(rng.uniform(0.5, STRIKE_WITHIN), rng.choice(FRAMES), rng.randrange(1000), 0.0)


def _choose(rng: random.Random) -> list[Fault]:
    if rng.random() < 0.2:  # one alone, which has to come to its end in good order
        at, victim = rng.uniform(2.0, STRIKE_WITHIN), rng.randrange(1000)
        kind = rng.choice(DECISIVE + PATIENT)
        return [Fault(at, kind, victim, AWAY if kind == "coordinator_away" else 0.0)]
    faults = []
    for _ in range(rng.randint(1, MOST_FAULTS)):
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        seconds = rng.choice((0.3, 2.0, LONGEST)) * rng.random()
        faults.append(Fault(rng.uniform(0.5, STRIKE_WITHIN), kind, rng.randrange(1000), seconds))
    if rng.random() < 0.3:  # troubles seldom come alone
        again = rng.choice(faults)
        kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
        at = again.at + rng.random() * 0.2
        faults.append(Fault(at, kind, rng.randrange(1000), rng.random() * 2))
    if rng.random() < 0.25:  # the coordinator dies over a decision that it has just made
        at = rng.uniform(2.0, STRIKE_WITHIN)
        victim = rng.randrange(1000)
        faults.append(Fault(at, "kill_before_save", victim, 0.0))
        faults.append(Fault(at + 0.01, rng.choice(DECISIVE), victim, 0.0))
    return faults


class Strikes:
    """Carries faults out."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    async def strike(self, fault: Fault) -> None:
        """Returns when it is over."""
        await asyncio.sleep(fault.at)
        if not self._cluster.over:
            await getattr(self._by(fault.kind), fault.kind)(fault)

    def _by(self, kind: str) -> object:
        if kind in SEQUENCES:
            return Sequences(self, self._cluster)
        if kind in LAST_MOMENTS:
            return LastMoments(self, self._cluster)
        return Frames(self, self._cluster) if kind in FRAMES else self

    def say(self, text: str) -> None:
        self._cluster.witness.say(f"-- {text}")

    def member(self, fault: Fault) -> Process | None:
        members = [p for p in self._cluster.members.values() if p.alive]
        return members[fault.victim % len(members)] if members else None

    def _agent(self, fault: Fault) -> Process | None:
        agents = [h.agent for h in self._cluster.hosts if h.agent and h.agent.alive]
        return agents[fault.victim % len(agents)] if agents else None

    def _coordinator(self) -> Process | None:
        process = self._cluster.keeper.process
        return process if process and process.alive else None

    def _host(self, fault: Fault) -> str | None:
        names = [h.name for h in self._cluster.hosts if h.name not in self._cluster.network.lost]
        return names[fault.victim % len(names)] if names else None

    # --- processes ------------------------------------------------------------------------------

    async def stop(self, process: Process | None, seconds: float) -> None:
        if process is None:
            return
        self.say(f"stop {process.name} for {seconds:.2f} s")
        process.stop()
        with self._cluster.disturbed(process.host, process.name):
            await asyncio.sleep(seconds)
            process.resume()
            if process.alive:
                self.say(f"continue {process.name}")

    async def stop_member(self, fault: Fault) -> None:
        await self.stop(self.member(fault), fault.seconds)

    async def stop_agent(self, fault: Fault) -> None:
        await self.stop(self._agent(fault), fault.seconds)

    async def stop_coordinator(self, fault: Fault) -> None:
        await self.stop(self._coordinator(), fault.seconds)

    async def kill(self, process: Process | None, code: int = -9) -> None:
        if process is not None:
            self.say(f"kill {process.name}")
            self._fell(process)
            with self._cluster.disturbed(process.host, process.name):
                process.end(code)
            self._cluster.count_holders()

    def _fell(self, process: Process) -> None:
        self._cluster.deaths.append(process.name)
        if process.pid in self._cluster.members:
            self._cluster.felled.add(process.name)

    async def kill_member(self, fault: Fault) -> None:
        await self.kill(self.member(fault))

    async def kill_agent(self, fault: Fault) -> None:
        await self.kill(self._agent(fault))

    async def kill_coordinator(self, fault: Fault) -> None:
        """Or it raises what nobody expected."""
        await self.kill(self._coordinator(), (-9, CRASHED)[fault.victim % 2])

    async def kill_at_callback(self, fault: Fault) -> None:
        """Any process, before one of its next callbacks: at any await."""
        found = (self.member(fault), self._agent(fault), self._coordinator())
        process = found[fault.victim % 3]
        if process is not None:
            process.lives = fault.victim // 3 % 100
            process.on_end.insert(0, self._is_killed)
            await asyncio.wait([process.ended], timeout=LONGEST)
            process.lives = None

    def _is_killed(self, process: Process) -> None:
        if process.lives == 0:
            self.say(f"kill {process.name} between two awaits")
            self._fell(process)
            self._cluster.disturb(process.host, process.name)
            self._cluster.count_holders()

    async def coordinator_away(self, fault: Fault) -> None:
        """For longer than the elastic timeout: a world that is whole does not notice."""
        steps = self._cluster.witness.steps
        await self.stop(self._coordinator(), fault.seconds)
        moved_at = self._cluster.witness.moved_at
        still = self._cluster.loop.now - moved_at > AWAY / 2
        if steps and still and not self._cluster.is_complete:
            self._cluster.witness.find("a whole world does not train on without a coordinator")

    async def late_end(self, fault: Fault) -> None:
        """The script of one member does something else at its end, and the others wait."""
        self._cluster.is_late = True

    async def second_coordinator(self, fault: Fault) -> None:
        """It has read the state, and is slow; the one that lives has written on meanwhile."""
        if self._coordinator() is None or self._cluster.store.away:
            return
        process = Process(self._cluster.loop, "second coordinator", "head")
        process.start(lambda: decide_beside(self._cluster))
        self._cluster.clients.append(process)
        await asyncio.wait([process.ended], timeout=3 * LONGEST)

    async def kill_before_save(self, fault: Fault) -> None:
        """At the next decision that has to be saved: before it is, or a moment later."""
        decided = self._cluster.witness.decided_next = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                await decided.wait()
        await asyncio.sleep(fault.victim % 4 * 0.01)
        await self.kill(self._coordinator())

    async def notice_member(self, fault: Fault) -> None:
        if (process := self.member(fault)) is not None:
            self.say(f"SIGTERM to {process.name}")
            self._cluster.wish()
            self._fell(process)
            can_do_without = self._cluster.witness.size > self._cluster.spec.min_np
            process.terminate()
            self._cluster.count_holders()
            if can_do_without:
                await self._check_notice(fault, process)

    async def _check_notice(self, fault: Fault, process: Process) -> None:
        """A member that nothing else holds up leaves before its notice is over."""
        cluster = self._cluster
        await asyncio.sleep(cluster.spec.grace)
        alone = all(
            other is fault
            or other.at > fault.at + cluster.spec.grace
            or other.until < fault.at - 15
            for other in cluster.faults
        )
        if alone and process.alive and not cluster.over:
            cluster.witness.find(f"{process.name} has not left when its notice is over")

    async def notice_host(self, fault: Fault) -> None:
        left = [h for h in self._cluster.hosts if h.agent and h.agent.alive]
        agent = self._agent(fault)
        if agent is not None and len(left) > 1:
            self.say(f"SIGTERM to {agent.name}")
            self._cluster.wish()
            agent.terminate()
            for host in left:
                host.left = host.left or host.agent is agent

    async def lose_host(self, fault: Fault) -> None:
        if (name := self._host(fault)) is not None:
            self.lose(name)

    def lose(self, name: str) -> None:
        cluster = self._cluster
        if not any(h.agent and h.agent.alive and h.name != name for h in cluster.hosts):
            return
        self.say(f"host {name} is lost")
        cluster.network.lose(name)
        cluster.disturb(name)
        for process in cluster.processes_on(name):
            process.end(-9)
        cluster.count_holders()
        if not cluster.witness.size:  # for all the coordinator knows, the first world has begun
            cluster.patience += cluster.spec.elastic_timeout

    # --- the network ----------------------------------------------------------------------------

    async def _cut(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        network = self._cluster.network
        self.say(f"cut {', '.join('-'.join(pair) for pair in pairs)} for {seconds:.2f} s")
        for one, other in pairs:
            network.cut(one, other)
        with self._cluster.disturbed(*{name for pair in pairs for name in pair}):
            await asyncio.sleep(seconds)
            for one, other in pairs:
                network.heal(one, other)
        self.say(f"healed {', '.join('-'.join(pair) for pair in pairs)}")

    async def cut_from_head(self, fault: Fault) -> None:
        if (name := self._host(fault)) is not None:
            await self._cut([("head", name)], fault.seconds)

    async def cut_head(self, fault: Fault) -> None:
        await self._cut([("head", h.name) for h in self._cluster.hosts], fault.seconds)

    async def cut_hosts(self, fault: Fault) -> None:
        names = [host.name for host in self._cluster.hosts]
        one = names[fault.victim % len(names)]
        others = [name for name in names if name != one]
        if others:
            await self._cut([(one, others[fault.victim // 7 % len(others)])], fault.seconds)

    async def slow_host(self, fault: Fault) -> None:
        if (name := self._host(fault)) is not None:
            self.say(f"{name} is slow for {fault.seconds:.2f} s")
            with self._cluster.disturbed(name):
                self._cluster.network.slow(name, 0.6)
                await asyncio.sleep(fault.seconds)
                self._cluster.network.slow(name, 0.0)

    async def reset_lines(self, fault: Fault) -> None:
        network = self._cluster.network
        for endpoint in list(network.endpoints)[fault.victim % 2 :: 1 + fault.victim % 3]:
            if endpoint in network.endpoints and endpoint.peer in network.endpoints:
                self.say(f"reset {endpoint.process.name} - {endpoint.peer.process.name}")
                self._cluster.disturb(endpoint.process.name, endpoint.peer.process.name)
                network.reset(endpoint)

    async def half_open(self, fault: Fault) -> None:
        network = self._cluster.network
        if network.endpoints:
            endpoint = list(network.endpoints)[fault.victim % len(network.endpoints)]
            self.say(f"half open {endpoint.process.name} - {endpoint.peer.process.name}")
            self._cluster.disturb(endpoint.process.name, endpoint.peer.process.name)
            self._cluster.silence(endpoint.process.name, endpoint.peer.process.name)
            network.make_half_open(endpoint)

    async def break_group(self, fault: Fault) -> None:
        """A connection between two members breaks; both processes are well."""
        if (process := self.member(fault)) is not None:
            training = self._cluster.trainings.get(process.name)
            if training is not None and training.holds_state:
                self.say(f"a connection of {process.name} to other members breaks")
                training.group.is_reset = True

    async def break_at_switch(self, fault: Fault) -> None:
        """The same, while the members go over to the next world."""
        switching = self._cluster.witness.switching_next = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                await switching.wait()
        await asyncio.sleep(fault.seconds / LONGEST * 2 * self._cluster.script.step_seconds)
        await self.break_group(fault)

    async def break_entering(self, fault: Fault) -> None:
        """The same, on the way into a world, and lines to the coordinator break with it."""
        for _ in range(round(LONGEST / LOOK_SECONDS)):
            entering = [t for t in self._cluster.trainings.values() if t.entering is not None]
            if entering:
                break
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return
        await asyncio.sleep(fault.seconds / LONGEST * self._cluster.script.transfer_seconds)
        training = entering[fault.victim % len(entering)]
        if training.entering is not None and training.process.alive:
            name = training.process.name
            self.say(f"a connection of {name} breaks on the way into a world")
            training.entering.is_reset = True
            await self.reset_lines(replace(fault, victim=0))

    async def differ(self, fault: Fault) -> None:
        """The script of one member sets a value to something else than the others do."""
        if (process := self.member(fault)) is not None:
            training = self._cluster.trainings.get(process.name)
            if training is not None and training.group is not None:
                self.say(f"{process.name} has another job.state than the others")
                training.differ(fault.victim)

    # --- the rest -------------------------------------------------------------------------------

    async def jump_clock(self, fault: Fault) -> None:
        seconds = (fault.seconds - LONGEST / 2) * 600
        self.say(f"the wall clock jumps by {seconds:.0f} s")
        self._cluster.loop.wall += seconds

    async def store_away(self, fault: Fault) -> None:
        store = self._cluster.store
        store.away, store.arrives = True, fault.victim % 2 == 0
        self.say(f"the store is away for {fault.seconds:.2f} s, writes arrive: {store.arrives}")
        await asyncio.sleep(fault.seconds)
        self._cluster.check_memory()
        store.away = False
        self.say("the store is back")

    async def store_full(self, fault: Fault) -> None:
        """What is there can be read, and nothing written until somebody has made room."""
        self.say(f"the store is full for {fault.seconds:.2f} s")
        self._cluster.store.full = True
        await asyncio.sleep(fault.seconds)
        self._cluster.store.full = False
        self.say("the store has room")

    async def other_plan(self, fault: Fault) -> None:
        """The scripts of newcomers ask for other data than those in training."""
        self.say(f"newcomers ask for other data for {fault.seconds:.2f} s")
        self._cluster.newcomers_differ = True
        await asyncio.sleep(fault.seconds)
        self._cluster.newcomers_differ = False

    async def unpackable(self, fault: Fault) -> None:
        """The scripts keep something in job.state that cannot travel."""
        if self._cluster.witness.steps:  # or it could never be handed over, and the job would end
            self.say(f"the state cannot be handed over for {fault.seconds:.2f} s")
            self._cluster.unpackable = True
            await asyncio.sleep(fault.seconds)
            self._cluster.unpackable = False

    async def ask_for_size(self, fault: Fault) -> None:
        to = 1 + fault.victim % self._cluster.spec.max_np
        self.ask(to, (2.0, 8.0, 30.0)[fault.victim % 3])

    async def ask_to_stop(self, fault: Fault) -> None:
        complete = fault.victim % 3 == 0
        self.say("stop the job, which has done its work" if complete else "stop the job")
        self._cluster.wish()
        process = Process(self._cluster.loop, "stop", "head")
        process.start(lambda: stop(self._cluster, complete))
        self._cluster.clients.append(process)
        await asyncio.wait([process.ended], timeout=3 * LONGEST)

    def ask(self, to: int, timeout: float) -> None:
        self.say(f"ask for size {to} within {timeout:g} s")
        process = Process(self._cluster.loop, f"resize to {to}", "head")
        process.start(lambda: resize(self._cluster, to, timeout))
        self._cluster.clients.append(process)
