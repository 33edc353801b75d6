"""A fake cluster around `handle`: agents and members that answer, on a clock that the test moves.

`FakeCluster` plays the shell (what must be saved first is saved first, and a restart takes the
state from the last save) and the members among themselves: they connect, hand the state over and
step together, only while all of a world take part. Hooks make somebody die, hang, stop or be slow;
then a failure in any order is a few lines. Everything a coordinator announces is checked by
`promises.Promises` as it goes by.
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from typing import Any

from midflight.coordinator.core import commands as do
from midflight.coordinator.core import events
from midflight.coordinator.core.handle import handle
from midflight.coordinator.core.state import OVER, Phase, Request, State, durable, initial, restored
from midflight.coordinator.saved_state import FORMAT, Saved
from midflight.protocol import codec
from midflight.protocol.dialect import Dialect
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import Form
from tests.coordinator.fake_members import FakeAgent, FakeMember, Fate, Health, Word
from tests.coordinator.fake_training import FakeTraining, waits
from tests.coordinator.promises import Promises

TICK = 0.1


class FakeCluster:
    def __init__(self, hosts: dict[str, int] | None = None, **spec: Any) -> None:
        """Hosts with so many slots each, all there at once; `spec` as in JobSpec and Dialect."""
        spec = {"np": 3, "min_np": 1, "max_np": 9, **spec}
        names = {field.name for field in fields(Dialect)}
        habits = {name: spec.pop(name) for name in names & spec.keys()}
        spec["dialect"] = Dialect(**habits)
        self.now = 100.0
        self.state = initial(JobSpec("job", ("python", "train.py"), **spec), self.now)
        self.agents: dict[str, FakeAgent] = {}
        self.members: dict[str, FakeMember] = {}  # all that ever were
        self.fate: defaultdict[str, Fate] = defaultdict(lambda: Fate.JOINS)
        self.uses_midflight = True
        self.last_step: int | None = None  # after it, scripts finish
        self.store_works = True
        self.mute: set[str] = set()  # members whose words are held back
        self.answers: dict[int, tuple[bool, str]] = {}
        self.lines: list[str] = []
        self.told: list[tuple[str, object]] = []
        self.starts: list[do.Start] = []
        self.ended: tuple[int, str] | None = None
        self.promises = Promises(self)
        self.training = FakeTraining(self)
        self.pick: Callable[[list[str]], str] = lambda sources: sources[0]
        self._words: dict[str, deque[Word]] = {}
        self._saved = self._dump()
        self._saved_part = durable(self.state)
        self._held: list[do.Command] = []
        self._tickets = itertools.count(1)
        self._pids = itertools.count(1000)
        for name, slots in (hosts if hosts is not None else {"h0": 4, "h1": 4}).items():
            self.add_host(name, slots)

    # --- looking ----------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def world(self) -> tuple[str, ...]:
        return self.state.world.names if self.state.world else ()

    @property
    def running(self) -> list[str]:
        """Processes that are there, needed or not."""
        return [m.name for m in self.members.values() if m.health is not Health.GONE]

    @property
    def saved(self) -> State:
        """What the store holds."""
        return codec.decode(Saved, codec.loads(self._saved)).state

    def heard(self, name: str, kind: type) -> list[Any]:
        return [message for message in self.members[name].heard if isinstance(message, kind)]

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    # --- doing ------------------------------------------------------------------------------

    def add_host(self, name: str, slots: int, net: int = 0) -> None:
        self.agents[name] = FakeAgent(name, slots, self._say, net=net)
        self.agents[name].dial()

    def run(self, seconds: float = 2.0) -> "FakeCluster":
        """Let time pass, in ticks."""
        self.settle()
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.training.train()
            self.settle()
            self._tick()
            self.settle()
        return self

    def run_until(self, condition: Callable[[], bool], seconds: float = 60.0) -> "FakeCluster":
        for _ in range(round(seconds / TICK)):
            if condition():
                return self
            self.run(TICK)
        raise AssertionError(f"it did not happen within {seconds:g} s; phase {self.phase.value}")

    def settle(self) -> None:
        """Deliver words until nobody has any more to say."""
        while self.deliver_one():
            pass

    def deliver_one(self) -> bool:
        self.training.meet()
        sources = [s for s, words in self._words.items() if words and self.is_audible(s)]
        if not sources:
            return False
        word = self._words[self.pick(sources)].popleft()
        self.handle(word(self.now))
        return True

    def handle(self, event: events.Event) -> None:
        self.state, commands = handle(self.state, event)
        for command in commands:
            if self._must_wait(command):
                self._held.append(command)
            else:
                self._carry_out(command)
        self.save()

    def ask(self, timeout: float = 60.0, **wish: Any) -> int:
        ticket = self.promises.asked = next(self._tickets)
        request = Request(ticket, self.now + timeout, **wish)
        self._say("client", lambda now: events.Asked(now, request))
        self.settle()
        return ticket

    def client(self, word: Callable[..., events.Event], *rest: object) -> None:
        self._say("client", lambda now: word(now, *rest))
        self.settle()

    # --- harm -------------------------------------------------------------------------------

    def kill(self, *names: str, code: int = -9, tail: str = "") -> None:
        """End processes; nobody has heard of it yet."""
        for name in names:
            self._end_process(name, code, tail)

    def kill_agent(self, host: str) -> None:
        agent = self.agents[host]
        agent.alive = agent.connected = False
        for member in tuple(agent.members.values()):
            self._close(member)
            member.health = Health.GONE
        agent.members.clear()
        self._say(f"agent {host}", lambda now: events.HostLost(now, host))

    def hang_up(self, *hosts: str) -> None:
        """The lines of these hosts' agents and members break; the processes live on."""
        for host in hosts:
            agent = self.agents[host]
            agent.connected = False
            self._say(f"agent {host}", partial(events.HostLost, host=host))
            for member in agent.members.values():
                self._close(member)

    def dial_again(self, *hosts: str) -> None:
        for host in hosts:
            agent = self.agents[host]
            agent.dial()
            for member in agent.members.values():
                if member.joined and member.health in (Health.RUNNING, Health.STUCK):
                    member.dial()

    def pause(self, seconds: float, *hosts: str) -> None:
        """The coordinator stands still (SIGSTOP); all of these hang up and dial again meanwhile."""
        self.settle()
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            self.training.train()
        self.hang_up(*(hosts or self.agents))
        self.settle()
        self.dial_again(*(hosts or self.agents))

    def cut(self, host: str) -> None:
        """Nothing comes through any more, and no connection breaks."""
        self.agents[host].cut = True

    def heal(self, host: str) -> None:
        agent = self.agents[host]
        agent.cut = False
        agent.dial()
        for member in agent.members.values():
            if member.joined:
                member.dial()

    def restart(self, back: bool = True) -> None:
        """The coordinator is killed and started again; words on the wire are lost."""
        saved = codec.decode(Saved, codec.loads(self._saved))
        if saved.state.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return  # nobody starts a coordinator for a job that is over
        self._words.clear()
        self._held.clear()
        self.ended = None
        self.training.lose_keys()
        self.state = restored(saved.state, self.now, saved.monotonic + (self.now - saved.saved_at))
        self._saved_part = durable(self.state)
        self.promises.restarted()
        for agent in self.agents.values():
            agent.connected = False
        for member in self.members.values():
            member.connected = False
        if back:
            self.come_back()

    def come_back(self) -> None:
        for agent in self.agents.values():
            if agent.alive:
                agent.dial()
        for member in self.members.values():
            if member.joined and member.health in (Health.RUNNING, Health.STUCK):
                member.dial()

    # --- the shell --------------------------------------------------------------------------

    def _must_wait(self, command: do.Command) -> bool:
        match command:
            case do.Tell(durable=True) | do.Stop(durable=True) | do.Start() | do.Answer():
                return True
            case do.Tell():
                return any(isinstance(held, do.Tell) for held in self._held)
            case _:
                return False

    def save(self) -> None:
        if not self.store_works:
            return
        if durable(self.state) != self._saved_part:
            self._saved = self._dump()
            self._saved_part = durable(self.state)
        held, self._held = self._held, []
        for command in held:
            if not self._overtaken(command):
                self._carry_out(command)

    def _overtaken(self, command: do.Command) -> bool:
        forming = self.state.forming
        match command:
            case do.Tell(message=Form(world)):
                return forming is None or forming.world != world
            case _:
                return False

    def _dump(self) -> bytes:
        return codec.dumps(Saved(FORMAT, self.now, self.now, self.state))

    def _carry_out(self, command: do.Command) -> None:
        match command:
            case do.Tell(names, message):
                self._tell(names, message)
            case do.Start():
                self.starts.append(command)
                for name in command.members:
                    if name in self.state.members:
                        self._start(name)
            case do.Stop(name, host, _):
                if self.agents[host].reachable and name in self.agents[host].members:
                    self._end_process(name, -9 if self.uses_midflight else -15)
            case do.Probe(name, host):
                if self.agents[host].reachable:
                    self.agents[host].probe(name)
            case _:
                self._report(command)

    def _report(self, command: do.Command) -> None:
        match command:
            case do.Answer(ticket, ok, detail):
                self.promises.answered(ticket)
                self.answers[ticket] = (ok, detail)
            case do.Say(line, _):
                self.lines.append(line)
            case do.End(code, reason):
                assert self.ended is None, "a job ends once"
                self.promises.failed(reason)
                self.ended = (code, reason)
            case _:
                assert isinstance(command, do.Inform)

    def _tell(self, names: Iterable[str], message: object) -> None:
        self.promises.announced(message)
        for name in names:
            member = self.members.get(name)
            if member and member.connected and not self.agents[member.host].cut:
                self.told.append((name, message))
                member.hear(message)

    def _tick(self) -> None:
        beats = {
            m.name: events.Beating(m.step, m.step, waits(m), self.now, m.moved)
            for m in self.members.values()
            if m.beats and self.is_audible(f"member {m.name}")
        }
        heard = frozenset(a.name for a in self.agents.values() if a.reachable)
        self.handle(events.Ticked(self.now, beats, heard))

    def _say(self, source: str, word: Word) -> None:
        self._words.setdefault(source, deque()).append(word)

    def is_audible(self, source: str) -> bool:
        kind, _, name = source.partition(" ")
        if kind == "agent":
            return not self.agents[name].cut
        if kind == "member":
            return name not in self.mute and not self.agents[self.members[name].host].cut
        return True

    # --- processes --------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        place = self.state.members[name]
        agent = self.agents[place.host]
        if not agent.reachable or name in agent.members:
            return
        ends = [end for end in agent.ends if getattr(end, "member", None) == name]
        if ends:
            agent.tell(type(ends[0]), *[v for k, v in vars(ends[0]).items() if k != "now"])
            return
        if self.fate[name] is Fate.CANNOT_START:
            agent.tell_end(events.NotStarted, name, "no such command: pyhton")
            return
        before = self.members.get(name)
        assert before is None or not before.generation, "a name is never used twice"
        taken = [agent.slot_of[n] for n in agent.members]
        assert place.slot not in taken, "a slot holds one process"
        member = FakeMember(name, place.host, next(self._pids), self._say, self._end_process)
        self.members[name] = agent.members[name] = member
        agent.slot_of[name] = place.slot
        agent.tell(events.Started, name, member.pid)
        if self.fate[name] is Fate.DIES:
            self._end_process(name, 1, "ImportError: no module named torhc")
        elif self.fate[name] is Fate.JOINS and self.uses_midflight:
            member.dial()

    def _end_process(self, name: str, code: int, tail: str = "") -> None:
        member = self.members[name]
        agent = self.agents[member.host]
        if member.health is Health.GONE:
            return
        self._close(member)
        member.health = Health.GONE
        del agent.members[name]
        agent.tell_end(events.Exited, name, code, tail)

    def _close(self, member: FakeMember) -> None:
        if member.joined:
            member.connected = False
            member.tell(events.Disconnected)


def stable(cluster: FakeCluster) -> bool:
    """Training, with as many members as are wanted, and nothing under way."""
    wanted = cluster.state.wanted
    return cluster.phase is Phase.STABLE and cluster.state.size == wanted


def over(cluster: FakeCluster) -> bool:
    return cluster.phase in OVER


def started(hosts: dict[str, int] | None = None, **spec: Any) -> FakeCluster:
    """A cluster whose job is training already."""
    cluster = FakeCluster(hosts, **spec)
    return cluster.run_until(lambda: stable(cluster)).run(1.0)
