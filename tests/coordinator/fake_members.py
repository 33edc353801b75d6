"""Fake training processes and agents: they answer the coordinator as real ones do, at once.

A fake member obeys the same rules as `runtime.membership`: an `Over` ends its generation and all
before, a `Form` implies that, a repeated order is answered again. What real members do among
themselves (connecting, handing the state over, doing a step together) is the cluster's business.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from midflight.coordinator.core import events
from midflight.protocol import messages as say
from midflight.protocol.messages import RunningMember, Switch
from midflight.protocol.world import World

Word = Callable[[float], events.Event]


class Fate(enum.Enum):
    """What becomes of a process after it was started."""

    JOINS = "joins"
    HANGS = "hangs"  # never dials in
    DIES = "dies"
    CANNOT_START = "cannot start"


class Health(enum.Enum):
    RUNNING = "running"
    STUCK = "stuck"  # beats, but its script does not come on
    BUSY = "busy"  # its script holds the interpreter: no beats, but the process runs
    STOPPED = "stopped"  # SIGSTOP
    GONE = "gone"


@dataclass
class FakeMember:
    name: str
    host: str
    pid: int
    say: Callable[[str, Word], None]
    exit: Callable[[str, int], None]
    health: Health = Health.RUNNING
    connected: bool = False
    joined: bool = False
    generation: int = 0  # that it is in, 0 for none
    step: int = 0
    holds_state: bool = False
    over: int = 0
    broken: bool = False
    moved: int = 0  # bytes of state
    forming: World | None = None
    prepared: dict[int, World] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    switch: Switch | None = None
    left_in: int | None = None  # the generation in which it was left out; it waits to be dismissed
    finished: bool = False
    stays: bool = False  # does not end when it is dismissed
    heard: list[object] = field(default_factory=list)

    @property
    def comes_on(self) -> bool:
        return self.health is Health.RUNNING

    @property
    def beats(self) -> bool:
        return self.connected and self.health in (Health.RUNNING, Health.STUCK)

    def tell(self, word: Callable[..., events.Event], *rest: object) -> None:
        self.say(f"member {self.name}", lambda now: word(now, self.name, *rest))

    def dial(self) -> None:
        """First, and after each lost connection: who it is, and what may not have been heard."""
        self.joined = True
        known = self.generation if self.holds_state else 0
        word = events.Joined(0.0, self.name, self.pid, known, self.step, self.over)
        self.say(f"member {self.name}", lambda now: self._let_in(replace(word, now=now)))
        if self.finished:
            self.tell(events.Finished, self.step)
        if self.broken and self.generation > self.over:
            self.tell(events.Broke, self.generation, self.step, "connection reset by peer")

    def _let_in(self, word: events.Event) -> events.Event:
        self.connected = self.health is not Health.GONE
        return word

    # --- orders -----------------------------------------------------------------------------

    def hear(self, message: object) -> None:
        self.heard.append(message)
        match message:
            case say.Form(world):
                self._form(world)
            case say.Prepare(world, _):
                if world.generation > self.over:
                    self.prepared.setdefault(world.generation, world)
                    if world.generation in self.ready:
                        self.tell(events.Ready, world.generation, self.step, self.step)
            case say.Switch():
                self._switch(message)
            case say.Abandon(generation):
                self._forget(generation, generation)
            case say.Over(generation):
                self._end(generation)
            case say.Dismiss(_, failed):
                if not self.stays:
                    self.exit(self.name, 1 if failed else 0)
            case _:
                pass

    def _form(self, world: World) -> None:
        if self.generation >= world.generation:
            if self.generation == world.generation and not self.broken:
                self.tell(events.Settled, self.generation, self.step)
        elif world.generation > self.over:
            self._end(world.generation - 1)
            self.forming = world

    def _switch(self, message: Switch) -> None:
        if self.generation == message.world.generation:
            self.tell(events.Settled, self.generation, self.step)
        elif message.world.generation > self.over:
            self.switch = message

    def _end(self, generation: int) -> None:
        self.over = max(self.over, generation)
        self.broken = self.broken or self.generation <= self.over
        self.left_in = None
        self._forget(0, generation)

    def _forget(self, first: int, last: int) -> None:
        for number in [n for n in self.prepared if first <= n <= last]:
            del self.prepared[number]
            self.ready.discard(number)
        if self.switch is not None and first <= self.switch.world.generation <= last:
            self.switch = None
        if self.forming is not None and first <= self.forming.generation <= last:
            self.forming = None

    # --- what happens to it among the others ------------------------------------------------

    def enter(self, world: World, step: int) -> None:
        self.generation = world.generation
        self.step = step
        self.holds_state = True
        self.broken = False
        self._forget(0, world.generation)
        self.tell(events.Settled, world.generation, step)

    def leave(self) -> None:
        assert self.switch is not None
        self.left_in = self.switch.world.generation
        self.switch = None
        self.tell(events.Settled, self.left_in, self.step)

    def break_off(self) -> None:
        """Its collective failed; it says so, unless a change explains it."""
        self.broken = True
        if self.switch is None:
            self.tell(events.Broke, self.generation, self.step, "connection reset by peer")


@dataclass
class FakeAgent:
    name: str
    slots: int
    say: Callable[[str, Word], None]
    alive: bool = True
    connected: bool = False
    cut: bool = False  # its network: nothing comes through, in either direction
    net: int = 0  # which its address is in
    members: dict[str, FakeMember] = field(default_factory=dict)
    slot_of: dict[str, int] = field(default_factory=dict)
    ends: list[events.Event] = field(default_factory=list)  # said again after a reconnect

    @property
    def reachable(self) -> bool:
        return self.alive and self.connected and not self.cut

    def tell(self, word: Callable[..., events.Event], *rest: object) -> None:
        self.say(f"agent {self.name}", lambda now: word(now, *rest))

    def tell_end(self, word: Callable[..., events.Event], *rest: object) -> None:
        self.ends.append(word(0.0, *rest))
        self.tell(word, *rest)

    def dial(self) -> None:
        running = tuple(
            RunningMember(name, self.slot_of[name], member.pid)
            for name, member in self.members.items()
        )
        address = f"10.0.{self.net}.{self.name[1:]}"
        ended = frozenset(end.member for end in self.ends if isinstance(end, events.Exited))
        word = events.HostJoined(0.0, self.name, self.slots, address, running, ended=ended)
        self.say(f"agent {self.name}", lambda now: self._let_in(replace(word, now=now)))
        for end in self.ends:
            self.tell(type(end), *[v for k, v in vars(end).items() if k != "now"])

    def _let_in(self, word: events.Event) -> events.Event:
        self.connected = self.alive
        return word

    def probe(self, name: str) -> None:
        member = self.members.get(name)
        state = "gone"
        for end in self.ends:
            if isinstance(end, events.Exited) and end.member == name:
                self.tell(events.Exited, name, end.code, end.tail)
                return
        if member is not None:
            state = "stopped" if member.health is Health.STOPPED else "running"
        self.tell(events.Probed, name, state)
