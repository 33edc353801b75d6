"""What a member does about its orders: pure decisions, with a link that reaches nobody."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from midflight.errors import GivenUp
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import (
    Dismiss,
    Form,
    MemberBroke,
    MemberJoined,
    MemberLeaving,
    MemberSettled,
    Over,
    Prepare,
    Switch,
)
from midflight.protocol.world import Member, World
from midflight.runtime.group.process_group import Group
from midflight.runtime.membership.driver import block
from midflight.runtime.membership.member import Dismissed, Enter, Leave, Membership, Order
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout
from tests.runtime.coordinators import OURS, PATIENCE, Coordinators

NOBODY = "127.0.0.1:1"


def world(generation: int, *names: str) -> World:
    return World(generation, tuple(Member(name, "h0", 0, "127.0.0.1") for name in names))


class Trainer:
    """A training session that is at some step."""

    def __init__(self, step: int = 0) -> None:
        self.holdings = Holdings({})
        self.holds_state = True
        self.waiting = False
        self.samples_done = 0
        self.steps_done = self.horizon = step
        self.foreseen: list[int] = []

    def foresee(self, step: int, world: World) -> None:
        self.foreseen.append(step)

    def ask_for_layout(self) -> None: ...

    def layout(self, group: Group) -> Layout:
        raise NotImplementedError


def a_member(
    step: int = 0, elastic_timeout: float = 600.0, coordinator: str = NOBODY
) -> Membership:
    """m0 in a world of two, before that step."""
    env = WorkerEnv("run", "m0", "h0", 0, "127.0.0.1", coordinator, "", elastic_timeout, 1.0, "")
    membership = Membership(env, OURS, "gloo", Trainer(step))
    membership.entered(Group(world(1, "m0", "m1"), "m0", "gloo"))
    assert block(membership.next_order(step)) is None
    return membership


def test_a_switch_that_is_brought_forward_interrupts_the_step_in_flight() -> None:
    member = a_member(step=5)
    member.hear(Switch(world(2, "m1"), (), 7))
    group = member.group
    assert group is not None and not group.is_cut
    assert block(member.next_order(5)) is None
    member.hear(Switch(world(2, "m1"), (), 5))
    assert group.is_cut
    assert block(member.next_order(5)) == Leave(2)


def test_a_switch_that_is_told_again_or_later_is_no_news() -> None:
    member = a_member(step=5)
    for step in (7, 7, 9):
        member.hear(Switch(world(2, "m1"), (), step))
    assert block(member.next_order(6)) is None
    assert block(member.next_order(7)) == Leave(2)


def test_a_world_that_is_announced_again_while_it_is_entered_is_entered_once() -> None:
    member = a_member()
    member.hear(Form(world(2, "m0")))
    order = block(member.next_order(0))
    assert isinstance(order, Enter)
    member.hear(Form(world(2, "m0")))  # the connection broke meanwhile, so it is told again
    member.entered(order.coming.group)
    assert block(member.next_order(0)) is None


def test_a_break_while_a_world_is_entered_is_said_again_after_a_reconnect() -> None:
    member = a_member()
    member.hear(Form(world(2, "m0")))
    order = block(member.next_order(0))
    assert isinstance(order, Enter)
    member.broke(order.coming.group, 0, "closed by peer")  # nobody hears that
    assert [m.generation for m in member.pending() if isinstance(m, MemberBroke)] == [2]


@pytest.mark.parametrize("stays", [True, False])
def test_what_breaks_in_a_world_that_was_left_at_a_switch_is_no_news(stays: bool) -> None:
    """Others close their ends of the old world when they have left it, sooner or later."""
    with Coordinators(OURS, hangs_up=False).serving() as coordinator:
        member = a_member(step=5, coordinator=coordinator.address)
        member.link.start()
        coordinator.first(MemberJoined)
        after = world(2, "m0" if stays else "m1")
        if stays:
            member.hear(Prepare(after, ()))
        member.hear(Switch(after, (), 6))
        assert isinstance(block(member.next_order(6)), Enter if stays else Leave)
        assert member.group is not None
        member.broke(member.group, 6, "another member has gone")
        member.say_settled(2)
        words = []
        while not isinstance(word := coordinator.met.get(timeout=PATIENCE), MemberSettled):
            words.append(word)
        again = member.pending()
        member.link.close()
    assert not [word for word in (*words, *again) if isinstance(word, MemberBroke)]


@contextmanager
def sigterm_as_notice(member: Membership, seconds: float) -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    member.leave_on_sigterm(seconds)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("dismissed", [False, True])
def test_sigterm_is_the_scripts_again_when_its_job_is_over(dismissed: bool) -> None:
    """One that the others go on without ends at once: its agent's signal changes nothing then."""
    member = a_member()
    before = signal.getsignal(signal.SIGTERM)
    assert before is signal.SIG_DFL
    try:
        member.leave_on_sigterm(30.0)
        ours = signal.getsignal(signal.SIGTERM)
        assert ours is not before
        if dismissed:
            member.hear(Dismiss("it is not needed any more", failed=False))
        member.close()
        assert signal.getsignal(signal.SIGTERM) is (ours if dismissed else before)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_handler_that_the_script_has_set_meanwhile_stays() -> None:
    member = a_member()
    before = signal.getsignal(signal.SIGTERM)
    try:
        member.leave_on_sigterm(30.0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        member.close()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_interrupts_a_send_does_not_wait_for_it() -> None:
    with Coordinators(OURS, hangs_up=False).serving() as coordinator:
        member = a_member(coordinator=coordinator.address)
        member.link.start()
        coordinator.first(MemberJoined)
        with sigterm_as_notice(member, 30.0):
            # where the training thread may be when the signal comes
            assert member.link._sending.acquire(timeout=1.0)
            signal.raise_signal(signal.SIGTERM)
            member.link._sending.release()
            first = coordinator.first(MemberLeaving).notice
            signal.raise_signal(signal.SIGTERM)
            second = coordinator.first(MemberLeaving).notice
        member.link.close()
    assert 29.0 < second < first <= 30.0, "being told twice gives nobody more time"


class Waiting:
    """The training thread, in a thread of its own, waiting for an order."""

    def __init__(self, ask: Callable[[], Order | None]) -> None:
        self._ask = ask
        self._answer: Order | None = None
        self._error: Exception | None = None
        self.busy = 0.0  # seconds of a core that the waiting has cost
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began = time.thread_time()
        try:
            self._answer = self._ask()
        except GivenUp as error:
            self._error = error
        self.busy = time.thread_time() - began

    def outcome(self) -> Order | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._answer


def test_a_member_that_has_finished_waits_without_using_a_core() -> None:
    member = a_member(elastic_timeout=0.01)
    waiting = Waiting(lambda: block(member.next_order(9, idle=True)))
    time.sleep(0.5)  # far beyond twice the elastic timeout
    member.hear(Dismiss("training is over", failed=False))
    assert isinstance(waiting.outcome(), Dismissed)
    assert waiting.busy < 0.1


@pytest.mark.parametrize(("named", "is_first"), [("m0", True), ("m1", False), ("", False)])
def test_a_member_knows_whether_it_is_the_first_of_those_left_after_training(
    named: str, is_first: bool
) -> None:
    member = a_member()
    assert not member.is_first
    member.hear(Dismiss("training is complete", failed=False, first=named))
    assert member.is_first is is_first


def test_a_whole_world_trains_on_without_a_coordinator_however_long() -> None:
    member = a_member(elastic_timeout=0.1)
    member.link.start()
    time.sleep(1.0)
    assert member.group is not None and not member.group.is_cut
    assert block(member.next_order(1)) is None
    member.link.close()


def test_a_broken_world_waits_for_a_coordinator_up_to_the_elastic_timeout() -> None:
    member = a_member(elastic_timeout=0.3)
    member.link.start()
    time.sleep(0.5)
    began = time.monotonic()
    assert member.group is not None
    member.broke(member.group, 0, "connection reset by peer")
    with pytest.raises(GivenUp):
        Waiting(lambda: block(member.next_order(0))).outcome()
    assert time.monotonic() - began >= 0.3, "it counts from the moment of need"
    member.link.close()


def test_a_member_that_has_finished_does_not_wait_for_a_lost_coordinator_for_ever() -> None:
    member = a_member(elastic_timeout=0.1)
    member.link.start()
    order = Waiting(lambda: block(member.next_order(9, idle=True))).outcome()
    member.link.close()
    assert isinstance(order, Dismissed) and not order.failed, "its training is complete"
    assert "coordinator did not answer" in order.reason


def test_what_a_member_needs_of_its_coordinator() -> None:
    member = a_member(step=5)
    trainer = member._trainer
    assert member.need() is None
    trainer.waiting = True
    first = member.need()
    assert first is not None, "in a collective that may never end"
    assert isinstance(trainer, Trainer)
    trainer.steps_done = 6
    assert member.need() not in (None, first), "but it is another one"
    trainer.waiting = False
    assert member.need() is None
    member.hear(Over(1))
    assert member.need() == "a world"
