"""A shadow join between threads of one process: what arrives at once, what follows, and the end."""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from midflight.runtime.group import process_group as groups
from midflight.runtime.group.process_group import Group
from midflight.runtime.shadow import stream
from midflight.runtime.shadow.join import Conclude, Means, Shadow, Share, Word, begin, judge
from midflight.runtime.shadow.stream import Copies, Pace
from midflight.runtime.state.agreement import Agreement, Standpoint, agree
from midflight.runtime.state.background import Rest
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Snapshot
from midflight.runtime.state.terms import Terms
from tests.runtime.keys import Keys
from tests.runtime.worlds import connected, outcomes

WIDTH = 300
WAIT, READY, GIVE_UP, HURRY = Word


class Member:
    """A model of which one matrix is large."""

    def __init__(self, seed: int, *, holds_state: bool = True) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.values = {"best": seed}
        held = {"model": self.model, "optimizer": self.optimizer}
        self.holdings = Holdings(held, self.values)
        self.progress = (2, 5, 0) if holds_state else None
        if holds_state:
            self.leave_gradients(5)
            self.optimizer.step()

    def leave_gradients(self, step: int) -> None:
        source = torch.Generator().manual_seed(step)
        for param in self.model.parameters():
            param.grad = torch.randn(param.shape, generator=source)

    def agree(self, group: Group) -> Agreement:
        mine = Standpoint(self.progress, self.capture, lambda _: True)
        agreed = agree(group, self.holdings, Terms(), mine, None)
        if agreed.received is not None:
            self.holdings.restore(agreed.received.snapshot)
        return agreed

    def capture(self) -> Snapshot:
        return self.holdings.capture({})

    def begin(self, group: Group, rest: Rest, line: Keys) -> Shadow:
        copies = Copies(rest.tensors)
        copies.touch()
        pace = partial(Pace, lambda: group.waits.are_open)
        return begin(group, rest, Means(line, pace, copies), self.capture, [self.optimizer])

    @property
    def bits(self) -> list[Any]:
        kept = [v.tolist() for s in self.optimizer.state.values() for v in s.values()]
        return [*(p.tolist() for p in self.model.parameters()), *kept]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Group]]:
    monkeypatch.setattr(groups, "BUILDING_SECONDS", 0.0)
    with connected(3) as members:
        yield members


def entered(world: Sequence[Group], members: Sequence[Member]) -> list[Shadow]:
    """All members' parts in a shadow join, which has begun."""
    agreed = outcomes(*(lambda m=m, g=g: m.agree(g) for m, g in zip(members, world, strict=True)))
    keys = Keys()
    return outcomes(
        *(
            lambda m=m, g=g, a=a: m.begin(g, a.rest, keys)
            for m, g, a in zip(members, world, agreed, strict=True)
        )
    )


def test_a_newcomer_replays_what_it_has_missed_and_ends_in_the_same_bits(
    world: list[Group],
) -> None:
    members = [Member(1), Member(1), Member(7, holds_state=False)]
    shadows = entered(world, members)
    *_, newcomer = members
    assert newcomer.values == {"best": 1}, "what is small comes at once"
    assert [shadow.is_newcomer for shadow in shadows] == [False, False, True]
    for step in range(6, 10):
        for member, shadow in zip(members, shadows, strict=True):
            member.leave_gradients(step)
            if shadow.is_newcomer:
                shadow.queue()
            else:
                member.optimizer.step()
    catch_up = shadows[2].catch_up
    assert catch_up is not None
    catch_up.await_close()
    assert shadows[2].word() is READY
    assert shadows[2].finish()
    assert newcomer.bits == members[0].bits
    for shadow in shadows:
        shadow.close()


def test_a_newcomer_whose_giver_is_gone_gives_up_and_holds_nothing(
    world: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    move = stream._move

    def fail(group: Group, peer: int, verb: Any, *args: Any) -> None:
        if verb == "send":
            raise RuntimeError("gloo: connection closed by peer")
        move(group, peer, verb, *args)

    monkeypatch.setattr(stream, "_move", fail)
    shadows = entered(world, [Member(1), Member(1), Member(7, holds_state=False)])
    catch_up = shadows[2].catch_up
    assert catch_up is not None
    catch_up.await_close()
    assert [shadow.word() for shadow in shadows] == [GIVE_UP, READY, GIVE_UP]
    assert not shadows[2].finish()


def test_a_queue_without_room_gives_up(world: list[Group], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_queue_limit", lambda _: 1000)
    members = [Member(1), Member(1), Member(7, holds_state=False)]
    shadows = entered(world, members)
    members[2].leave_gradients(6)
    shadows[2].queue()
    assert shadows[2].word() is GIVE_UP


def test_a_stream_yields_no_more_when_the_newcomer_runs_out_of_room(
    world: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    move, hurried = stream._move, threading.Event()

    def held(*args: Any) -> None:
        assert hurried.wait(60)
        move(*args)

    monkeypatch.setattr(stream, "_move", held)
    monkeypatch.setattr(stream, "ROOMY", 1e-9)
    monkeypatch.setattr(Pace, "hurry", lambda _: hurried.set())
    members = [Member(1), Member(1), Member(7, holds_state=False)]
    shadows = entered(world, members)
    members[2].leave_gradients(6)
    shadows[2].queue()
    assert shadows[2].word() is HURRY
    consulted = outcomes(*(lambda s=s: s.consult(6, 6, hurry=False) for s in shadows))
    assert consulted == [None, None, None], "it goes on"
    assert shadows[2].catch_up is not None
    shadows[2].catch_up.await_close()
    assert shadows[2].word() is READY
    for shadow in shadows:
        shadow.close()


def test_a_stream_rests_in_proportion_while_others_average(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rests = [10.0], list[float]()
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    busy = True
    pace = Pace(lambda: busy)
    monkeypatch.setattr(pace._at_full_speed, "wait", rests.append)
    pace.begin()
    now[0] += 0.01
    pace(1)
    now[0] += 5  # it was paused
    pace(1)
    busy = False
    now[0] += 0.01
    pace(1)
    assert rests == pytest.approx([0.03, stream.LONGEST_REST])


def test_a_stream_keeps_within_its_limit_even_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rests = [10.0], list[float]()
    monkeypatch.setattr(stream.time, "monotonic", lambda: now[0])
    pace = Pace(lambda: True, limit=1000.0)
    monkeypatch.setattr(pace._over, "wait", rests.append)
    pace.begin()
    pace.hurry()
    now[0] += 0.01
    pace(100)
    now[0] += 0.5
    pace(100)
    assert rests == pytest.approx([0.09, 0.0])


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_one_member_that_will_not_is_enough_for_the_blocking_way(
    world: list[Group], alone: int
) -> None:
    members = [Member(1), Member(1), Member(7, holds_state=False)]

    def enter(member: Member, group: Group) -> Agreement:
        mine = Standpoint(member.progress, member.capture, lambda _: group.rank != alone)
        return agree(group, member.holdings, Terms(), mine, None)

    agreed = outcomes(*(lambda m=m, g=g: enter(m, g) for m, g in zip(members, world, strict=True)))
    assert [one.rest for one in agreed] == [None] * 3
    received = agreed[2].received.snapshot
    assert any(torch.equal(t, members[0].model[0].weight) for t in received.tensors[:4])


def test_shares_begin_beyond_all_loaded_data_once_nobody_has_to_wait() -> None:
    assert judge([(READY, 7), (READY, 9), (WAIT, 6)], 6, None) is None
    assert judge([(READY, 7), (READY, 9), (READY, 6)], 6, None) == Share(10)
    assert judge([(READY, 5), (READY, 5), (READY, 5)], 6, None) == Share(7)
    assert judge([(READY, 9), (READY, 9), (WAIT, 9)], 9, 10) is None
    assert judge([(READY, 9), (READY, 9), (WAIT, 9)], 10, 10) == Conclude()
    assert judge([(READY, 7), (GIVE_UP, 9), (WAIT, 6)], 6, None) == Conclude()
    assert judge([(READY, 7), (GIVE_UP, 9), (WAIT, 6)], 6, 10) == Conclude()
