"""What is settled while a world is being connected: the backend, the terms, room for the state."""

import threading
from typing import Any

import pytest
from torch import nn

from midflight.errors import StateError
from midflight.runtime.group import process_group as groups
from midflight.runtime.group.process_group import Group
from midflight.runtime.membership.driver import block
from midflight.runtime.membership.next_world import Coming
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout
from midflight.runtime.state.terms import Terms
from tests.runtime.keys import Keys, world

SECONDS = 30.0


class Giver:
    """A session, as far as a preparing thread sees it."""

    def __init__(self, *backends: str, terms: Terms | None = None, values: Any = None) -> None:
        self.holdings = Holdings({"model": nn.Linear(3, 2)}, values)
        self.backends = backends or ("gloo",)
        self._terms = terms or Terms()

    def terms(self) -> Terms:
        return self._terms

    def ask_for_layout(self) -> None:
        """It is made when it is wanted."""

    def layout(self, group: Group) -> Layout:
        return self.holdings.capture({}).layout


class Preparation:
    """Members m0, m1, ... prepare a world; the last one is to join."""

    def __init__(self, *givers: Giver) -> None:
        self._keys, coming = Keys(), world(len(givers))
        joiner = coming.names[-1]
        self.problems: dict[str, str] = {}
        self._told = {name: threading.Event() for name in coming.names}
        self.comings = [
            Coming(coming, name, giver.backends[0], (joiner,))
            for name, giver in zip(coming.names, givers, strict=True)
        ]
        for one, giver in zip(self.comings, givers, strict=True):
            one.start(self._keys, giver, self._hear)

    def _hear(self, coming: Coming, problem: str) -> None:
        name = coming.world.names[coming.group.rank]
        self.problems[name] = problem
        self._told[name].set()

    def problem(self, name: str) -> str:
        assert self._told[name].wait(SECONDS)
        return self.problems[name]

    def abandon(self) -> None:
        for coming in self.comings:
            coming.cancel()
        self._keys.give_up()
        for told in self._told.values():
            assert told.wait(SECONDS)


@pytest.fixture(autouse=True)
def _several_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "BUILDING_SECONDS", 0.0)


def test_members_on_equal_terms_become_ready() -> None:
    preparation = Preparation(Giver(), Giver(), Giver())
    assert [preparation.problem(f"m{rank}") for rank in range(3)] == ["", "", ""]
    assert preparation.comings[2].prepared is not None
    preparation.abandon()


def test_a_state_that_cannot_be_handed_over_is_told_by_whoever_holds_it() -> None:
    preparation = Preparation(Giver(values={"writer": object()}), Giver())
    assert "job.state.writer: a value of type object" in preparation.problem("m0")
    preparation.abandon()


def test_a_newcomer_that_asks_for_other_batches_is_not_ready() -> None:
    first, other = (Terms(plan={"global_batch_size": size, "epochs": 3}) for size in (128, 192))
    preparation = Preparation(Giver(terms=first), Giver(terms=other))
    assert "global_batch_size is 192 on m1 and 128 on m0" in preparation.problem("m1")
    preparation.abandon()


def test_a_member_in_training_that_is_at_another_plan_already_is_not_disturbed() -> None:
    first, next_one = (Terms(plan={"samples": samples, "epochs": 3}) for samples in (10, 20))
    preparation = Preparation(Giver(terms=first), Giver(terms=next_one), Giver(terms=first))
    assert [preparation.problem(f"m{rank}") for rank in range(3)] == ["", "", ""]
    preparation.abandon()


def test_a_member_that_can_use_both_backends_follows_rank_0() -> None:
    preparation = Preparation(Giver("gloo"), Giver("nccl", "gloo"))
    assert [preparation.problem(f"m{rank}") for rank in range(2)] == ["", ""]
    assert [coming.group.backend for coming in preparation.comings] == ["gloo", "gloo"]
    preparation.abandon()


def test_a_member_that_was_told_another_backend_says_so_before_it_connects() -> None:
    preparation = Preparation(Giver("gloo"), Giver("nccl"))
    wanted = "m1 uses the backend nccl and m0 uses gloo; pass the same join(backend=...)"
    assert wanted in preparation.problem("m1")
    with pytest.raises(StateError):
        block(preparation.comings[1].wait())
    preparation.abandon()
