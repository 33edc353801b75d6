"""What a member does about its orders: pure decisions, with a link that reaches nobody."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import MemberJoined, MemberLeaving, Switch
from midflight.protocol.world import Member, World
from midflight.runtime.group import Group
from midflight.runtime.holdings import Holdings
from midflight.runtime.layout import Layout
from midflight.runtime.membership import Leave, Membership
from tests.runtime.coordinators import OURS, Coordinators

NOBODY = "127.0.0.1:1"


def world(generation: int, *names: str) -> World:
    return World(generation, tuple(Member(name, "h0", 0, "127.0.0.1") for name in names))


class Trainer:
    """A training session that is at some step."""

    def __init__(self, step: int = 0) -> None:
        self.holdings = Holdings({})
        self.holds_state = True
        self.waiting = False
        self.steps_done = self.horizon = step
        self.foreseen: list[int] = []

    def foresee(self, step: int, world: World) -> None:
        self.foreseen.append(step)

    def ask_for_layout(self) -> None: ...

    def layout(self) -> Layout:
        raise NotImplementedError


def a_member(
    step: int = 0, elastic_timeout: float = 600.0, coordinator: str = NOBODY
) -> Membership:
    """m0 in a world of two, before that step."""
    env = WorkerEnv("run", "m0", "h0", 0, "127.0.0.1", coordinator, "", elastic_timeout, 1.0, "")
    membership = Membership(env, OURS, "gloo", Trainer(step))
    membership.entered(Group(world(1, "m0", "m1"), "m0", "gloo"))
    assert membership.next_order(step) is None
    return membership


def test_a_switch_that_is_brought_forward_interrupts_the_step_in_flight() -> None:
    member = a_member(step=5)
    member.hear(Switch(world(2, "m1"), (), 7))
    group = member.group
    assert group is not None and not group.is_cut
    assert member.next_order(5) is None
    member.hear(Switch(world(2, "m1"), (), 5))
    assert group.is_cut
    assert member.next_order(5) == Leave(2)


def test_a_switch_that_is_told_again_or_later_is_no_news() -> None:
    member = a_member(step=5)
    for step in (7, 7, 9):
        member.hear(Switch(world(2, "m1"), (), step))
    assert member.next_order(6) is None
    assert member.next_order(7) == Leave(2)


@contextmanager
def sigterm_as_notice(member: Membership, seconds: float) -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    member.leave_on_sigterm(seconds)
    try:
        yield
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
