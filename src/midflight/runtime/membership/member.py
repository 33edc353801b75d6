"""This member's place in the job: what the coordinator has ordered, and what is due now.

The link's thread writes orders down (and cuts groups that are over, so that a blocked training
thread wakes); the training thread asks at each step boundary what is due. Between changes that
question is one attribute: `due`.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from midflight.errors import GivenUp
from midflight.protocol import messages as say
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.world import World
from midflight.runtime.group.process_group import Group
from midflight.runtime.membership.link import Link
from midflight.runtime.membership.next_world import Coming
from midflight.runtime.state.channel import bytes_moved
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout
from midflight.runtime.state.terms import Terms


class Trainer(Protocol):
    """The training session, as seen from here."""

    holdings: Holdings
    holds_state: bool
    waiting: bool
    samples_done: int
    backends: tuple[str, ...]

    def terms(self) -> Terms: ...
    @property
    def steps_done(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    def ask_for_layout(self) -> None: ...
    def layout(self, group: Group) -> Layout: ...
    def foresee(self, step: int, world: World) -> None: ...


@dataclass(frozen=True)
class Enter:
    """Go over to this world now."""

    coming: Coming
    planned: bool


@dataclass(frozen=True)
class Leave:
    """The world goes on without this member; wait until it may go."""

    generation: int


@dataclass(frozen=True)
class Dismissed:
    reason: str
    failed: bool
    is_first: bool = False  # of those who are left after training


Order = Enter | Leave | Dismissed
MakeComing = Callable[[World, str, str, tuple[str, ...]], Coming]
"""From the world, this member's name, its backend and the joiners."""


class Membership:
    def __init__(
        self,
        env: WorkerEnv,
        secret: bytes,
        backend: str,
        trainer: Trainer,
        make_coming: MakeComing = Coming,
    ) -> None:
        self.due = True  # nothing may be trained before the first world
        self.group: Group | None = None
        self._env = env
        self._backend = backend
        self._trainer = trainer
        self._make_coming = make_coming
        self._news = threading.Condition()
        self._coming: dict[int, Coming] = {}
        self._entering: Coming | None = None  # no longer coming, and not the world of now yet
        self._form: int | None = None  # the generation to be entered at once
        self._switch: say.Switch | None = None
        self._dismissed: Dismissed | None = None
        self._given_up: str | None = None
        self._over = 0  # generations up to this one are over
        self._left = 0  # the generation that was left at a switch
        self._begun = -1  # the step that the training thread is in
        self._leaving = False
        self._finished = False
        self._idle = False  # nothing is left to be trained here: it waits to be let go
        self._sigterm_handler: Callable[..., None] | None = None
        self._leave_until: float | None = None  # when this process will be ended
        self.link = self._make_link(env, secret)

    def _make_link(self, env: WorkerEnv, secret: bytes) -> Link:
        return Link(env, secret, self)

    def now(self) -> float:
        """In seconds, on a clock that is never set back."""
        return time.monotonic()

    # --- called by the link's thread --------------------------------------------------------

    def greeting(self) -> say.MemberJoined:
        generation = self.group.generation if self.group and self._trainer.holds_state else 0
        return say.MemberJoined(
            pid=os.getpid(),
            generation=generation,
            step=self._trainer.steps_done,
            parameters=self._trainer.holdings.fingerprint,
            over=self._over,
        )

    def beat(self) -> say.Beat:
        trainer = self._trainer
        return say.Beat(
            trainer.steps_done,
            trainer.horizon,
            trainer.waiting,
            bytes_moved(),
            trainer.samples_done,
        )

    def pending(self) -> Sequence[object]:
        again: list[object] = []
        if self._finished:
            again.append(self._finish_said())
        entering = self._entering.group if self._entering is not None else None
        for group in (entering, self.group):
            if group is not None and group.is_cut and not self._is_past(group):
                generation, step = group.generation, self._trainer.steps_done
                again.append(say.MemberBroke(generation, step, "it broke while nobody listened"))
        if self._leave_until is not None:
            again.append(say.MemberLeaving(max(0.0, self._leave_until - time.monotonic())))
        return again

    def need(self) -> str | None:
        """What only a coordinator can give; None: a whole world trains on without one."""
        if self._idle:
            return "leave to end"
        if self._entering is not None or not self._in_valid_world():
            return "a world"
        if self._trainer.waiting:  # for a peer that hangs, perhaps: only a coordinator could tell
            return f"the end of step {self._trainer.steps_done}"
        return None

    def hear(self, message: object) -> None:
        with self._news:
            match message:
                case say.Form(world):
                    self._on_form(world)
                case say.Prepare(world, joiners):
                    self._on_prepare(world, joiners)
                case say.Switch():
                    self._on_switch(message)
                case say.Abandon(generation):
                    self._drop_coming(generation, generation)
                case say.Over(generation):
                    self._on_over(generation)
                case say.Dismiss(reason, failed, first):
                    self._on_dismiss(Dismissed(reason, failed, first == self._env.member))
                case _:
                    return
            self.due = True
            self._news.notify_all()

    def give_up(self, reason: str) -> None:
        """A coordinator is needed and cannot be reached: nobody may step on alone."""
        with self._news:
            self._given_up = reason
            self._end_everything()

    def _end_everything(self) -> None:
        self.due = True
        if self.group is not None:
            self.group.cut()
        self._drop_coming(0, 1 << 62)
        self._news.notify_all()

    def _on_form(self, world: World) -> None:
        current = self.group
        if current is not None and current.generation >= world.generation:
            if current.generation == world.generation and not current.is_cut:
                self.say_settled(world.generation)
            return
        if world.generation <= self._over or world.generation in self._coming:
            return
        if self._entering is not None and self._entering.generation == world.generation:
            return  # it is on its way there, and will say when it has arrived, or has failed
        self._on_over(world.generation - 1)
        self._build(world, (), planned=False)
        self._form = world.generation

    def _on_prepare(self, world: World, joiners: tuple[str, ...]) -> None:
        known = self._coming.get(world.generation)
        if known is not None and known.connected:
            self._on_ready(known, "")  # the first answer was lost
        elif world.generation > self._over and known is None:
            self._build(world, joiners, planned=True)
            self.link.send(self.beat())

    def _build(self, world: World, joiners: tuple[str, ...], *, planned: bool) -> None:
        coming = self._make_coming(world, self._env.member, self._backend, joiners)
        self._coming[world.generation] = coming
        coming.start(self.link, self._trainer, self._on_ready if planned else _no_answer)

    def _on_ready(self, coming: Coming, problem: str) -> None:
        """The thread that prepares a planned change has come to its end."""
        if coming.generation <= self._over or coming.generation not in self._coming:
            return
        if problem:
            self.link.send(say.MemberNotReady(coming.generation, problem))
        else:
            trainer = self._trainer
            self.link.send(say.MemberReady(coming.generation, trainer.steps_done, trainer.horizon))

    def _on_switch(self, message: say.Switch) -> None:
        generation = message.world.generation
        if self.group is not None and self.group.generation == generation:
            self.say_settled(generation)
            return
        known = self._switch
        if generation <= self._over or (
            known is not None and known.world == message.world and known.step <= message.step
        ):
            return
        self._switch = message
        if self._env.member in message.world:
            self._trainer.foresee(message.step, message.world)
        if self.group is not None and self._begun >= message.step:
            self.group.cut()  # heard too late: the step that was begun will not be joined

    def _on_over(self, generation: int) -> None:
        self._over = max(self._over, generation)
        if self.group is not None and self.group.generation <= generation:
            self.group.cut()
        self._drop_coming(0, generation)
        self.link.cancel_keys(generation)
        self._leaving = False

    def _drop_coming(self, first: int, last: int) -> None:
        for number in [n for n in self._coming if first <= n <= last]:
            self._coming.pop(number).cancel()
            self.link.cancel_keys(number)
        if self._entering is not None and first <= self._entering.generation <= last:
            self._entering.cancel()
        if self._switch is not None and first <= self._switch.world.generation <= last:
            self._switch = None
        if self._form is not None and first <= self._form <= last:
            self._form = None

    def _on_dismiss(self, dismissed: Dismissed) -> None:
        self._dismissed = dismissed
        if dismissed.failed:
            self._end_everything()

    def say_settled(self, generation: int) -> None:
        """A newcomer has arrived only when it has all of the state."""
        if not self._trainer.holds_state:
            return
        self.link.send(say.MemberSettled(generation, self._trainer.steps_done))

    # --- called by the training thread ------------------------------------------------------

    async def next_order(self, step: int, *, idle: bool = False) -> Order | None:
        """What has to be done before `step`; None: train it.

        Waits while there is no valid world. `idle`: there is no next step; wait for an order, as
        long as the others train and a coordinator answers.
        """
        deadline = time.monotonic() + 2 * self._env.elastic_timeout
        with self._news:
            self._idle = idle
            while True:
                if (order := self._due_now(step)) is not None:
                    return order
                if self._in_valid_world() and not idle:
                    self.due = self._switch is not None
                    self._begun = step
                    return None
                left = None if idle else max(0.0, deadline - time.monotonic())
                if not await self._wait_for_news(left):
                    raise GivenUp("no world has named this member for twice the elastic timeout")

    async def _wait_for_news(self, seconds: float | None) -> bool:
        """Blocks; False: nothing was heard in so many seconds."""
        return self._news.wait(seconds)

    def _due_now(self, step: int) -> Order | None:
        if self._given_up is not None:
            if self._idle:  # nobody is left who could want this member's state
                return Dismissed(self._given_up, failed=False)
            raise GivenUp(self._given_up)
        if self._dismissed is not None:
            return self._dismissed
        if self._form is not None:
            generation, self._form = self._form, None
            self._entering = self._coming.pop(generation)
            return Enter(self._entering, planned=False)
        switch = self._switch
        if switch is None or (self._trainer.holds_state and step < switch.step):
            return None
        self._switch = None
        if self._env.member not in switch.world:
            self._leaving = True
            self._left = self.group.generation if self.group is not None else 0
            return Leave(switch.world.generation)
        self._entering = self._coming.pop(switch.world.generation, None)
        if self._entering is None:
            return None
        self._left = self.group.generation if self.group is not None else 0
        return Enter(self._entering, planned=True)

    def _is_past(self, group: Group) -> bool:
        """Whether what becomes of this group matters to nobody any more."""
        return group.generation <= max(self._over, self._left)

    def _in_valid_world(self) -> bool:
        group = self.group
        return (
            group is not None
            and not self._leaving
            and not group.is_cut
            and group.generation > self._over
        )

    @property
    def is_leaving(self) -> bool:
        """Whether this process has been told that it will be ended."""
        return self._leave_until is not None

    @property
    def is_first(self) -> bool:
        """Whether the coordinator has named it as the first of those left after training."""
        return self._dismissed is not None and self._dismissed.is_first

    @property
    def announced(self) -> bool:
        """Whether a planned change or the end of the job has been heard of, due or not."""
        return self._switch is not None or self._dismissed is not None

    def begin_step(self, step: int) -> bool:
        """The training thread begins this step; False if something has just become due."""
        with self._news:
            if self.due:
                return False
            self._begun = step
            return True

    def entered(self, group: Group) -> None:
        """The training thread is in this world now."""
        with self._news:
            self.group = group
            self._entering = None
            if group.generation <= self._over:
                group.cut()
        self.say_settled(group.generation)

    def broke(self, group: Group, step: int, reason: str) -> None:
        """A collective failed. Unless that was to be expected, the coordinator wants to know."""
        group.cut()
        with self._news:
            self.due = True
            switch = self._switch
            late = switch is not None and self._begun >= switch.step
            expected = self._is_past(group) or late
        if not expected:
            self.link.send(say.MemberBroke(group.generation, step, reason[:500]))

    def finish(self) -> None:
        self._finished = True
        self.link.send(self._finish_said())

    def _finish_said(self) -> say.MemberFinished:
        return say.MemberFinished(self._trainer.steps_done, self._trainer.samples_done)

    def start(self) -> None:
        """Dial in."""
        self.leave_on_sigterm(self._env.grace)
        self.link.start()

    def leave_on_sigterm(self, grace: float) -> None:
        """SIGTERM is a preemption notice, unless the script has other plans for it."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        if on_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            pid = os.getpid()  # a DataLoader's worker inherits the handler, but is no member

            def handle(*_: object) -> None:
                if os.getpid() == pid:
                    self.leave_on_notice(grace)

            signal.signal(signal.SIGTERM, handle)
            self._sigterm_handler = handle

    def close(self) -> None:
        """SIGTERM is the script's again, unless this process is on its way out: then it ends."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        goes_on = self._finished or self._dismissed is None
        handler = self._sigterm_handler
        if handler and on_main_thread and goes_on and signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.link.close()

    def leave_on_notice(self, seconds: float) -> None:
        """Called in a signal handler, too: takes no lock that the interrupted code may hold."""
        if self._leave_until is None:  # being told again gives nobody more time
            self._leave_until = time.monotonic() + seconds
        self.link.say_pending()


def _no_answer(coming: Coming, problem: str) -> None:
    """Nobody asks whether a world formed at once is ready: entering it tells."""
