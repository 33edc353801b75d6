"""Members enter a world with states that differ, and leave the agreement with one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import midflight as mf
from midflight.errors import DataError, StateError, UsageError, WorldChanged
from midflight.runtime.data.audit import parse_comparisons
from midflight.runtime.data.ledger import Ledger
from midflight.runtime.group.process_group import Group
from midflight.runtime.state import room
from midflight.runtime.state.agreement import Agreement, Received, Standpoint, agree
from midflight.runtime.state.claims import Claim
from midflight.runtime.state.equality import Equality
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.terms import Terms
from tests.runtime.worlds import connected, outcomes


class Member:
    """A model, an optimizer and plain values, as far as one likes."""

    def __init__(self, step: int | None = 20, *, generation: int = 2) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(400, 300), nn.BatchNorm1d(300))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.values: dict[str, Any] = {"best": 1}
        held = {"model": self.model, "optimizer": self.optimizer}
        self.holdings = Holdings(held, self.values)
        self.progress = None if step is None else (generation, step, 0)

    @property
    def standpoint(self) -> Standpoint:
        return Standpoint(self.progress, lambda: self.holdings.capture({"step": self.progress}))

    def enter(self, group: Group, terms: Terms | None = None) -> Agreement:
        agreed = agree(group, self.holdings, terms or Terms(), self.standpoint, None)
        if agreed.received is not None:
            self.holdings.restore(agreed.received.snapshot)
        return agreed

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    with connected(3) as members:
        yield members


def enter(groups: list[Group], *members: Member) -> list[Any]:
    """What each of them got, or the error that it raised."""
    pairs = zip(members, groups, strict=True)
    return outcomes(*(lambda m=m, group=group: m.enter(group) for m, group in pairs))


def received(outcome: Any) -> Received:
    assert isinstance(outcome, Agreement) and outcome.received is not None, outcome
    return outcome.received


def same_weights(*members: Member) -> bool:
    first, *others = (m.model[0].weight for m in members)
    return all(torch.equal(first, other) for other in others)


def test_equal_members_keep_what_they_have(groups: list[Group]) -> None:
    answers = enter(groups, Member(), Member(), Member())
    assert [answer.received for answer in answers] == [None] * 3
    assert len({answer.claim for answer in answers}) == 1


def test_a_learning_rate_that_one_member_changed_is_put_right_and_named(
    groups: list[Group],
) -> None:
    members = [Member(), Member(), Member()]
    members[1].optimizer.param_groups[0]["lr"] = 0.05
    answers = enter(groups, *members)
    assert [m.rate for m in members] == [0.1] * 3
    taken = received(answers[1])
    assert taken.source == "m0"
    assert taken.differed == "optimizer.param_groups[0].lr is 0.05 here and 0.1 there"
    assert answers[0].received is None


def test_rank_0_is_put_right_too_if_it_is_the_one_that_differs(groups: list[Group]) -> None:
    members = [Member(), Member(), Member()]
    members[0].values["best"] = 2
    taken = received(enter(groups, *members)[0])
    assert taken.differed == "job.state.best is 2 here and 1 there"
    assert members[0].values == {"best": 1}


def test_weights_that_differ_are_put_right_and_the_tensor_is_named(groups: list[Group]) -> None:
    members = [Member(), Member(), Member()]
    with torch.no_grad():
        members[2].model[0].weight *= 1.001
    taken = received(enter(groups, *members)[2])
    assert taken.differed == "the values of model[0.weight] differ"
    assert same_weights(*members)


def test_a_single_value_of_a_large_tensor_is_enough(groups: list[Group]) -> None:
    members = [Member(), Member(), Member()]
    with torch.no_grad():
        members[1].model[0].weight[0, 0] *= 1.001
    assert received(enter(groups, *members)[1]).differed == "the values of model[0.weight] differ"
    assert same_weights(*members)


def test_the_statistics_of_a_step_that_did_not_happen_are_no_difference(
    groups: list[Group],
) -> None:
    members = [Member(), Member(), Member()]
    members[1].model(torch.randn(8, 400))
    assert [answer.received for answer in enter(groups, *members)] == [None] * 3


def test_random_numbers_and_the_order_of_a_set_are_no_difference(groups: list[Group]) -> None:
    members = [Member(), Member(), Member()]
    for number, member in enumerate(members):
        names = [f"name {(place + number) % 50}" for place in range(50)]
        member.values["seen"] = set(names)
    assert [answer.received for answer in enter(groups, *members)] == [None] * 3


def test_a_member_that_did_the_last_step_in_an_older_world_takes_the_others_state(
    groups: list[Group],
) -> None:
    members = [Member(generation=1), Member(), Member()]
    with torch.no_grad():
        members[0].model[0].weight += 1
    assert received(enter(groups, *members)[0]).differed == ""  # it was behind
    assert same_weights(*members)


def test_members_without_room_receive_beside_their_state_and_give_it_on(
    groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "on_device", lambda tensor: True)
    monkeypatch.setattr(room, "free_bytes", lambda device: 0)
    members = [Member(19), Member(), Member(19)]  # one gives to the other
    with torch.no_grad():
        members[1].model[0].weight += 1
    places = [member.model[0].weight.data_ptr() for member in members]
    answers = enter(groups, *members)
    assert received(answers[0]).source == "m1"
    assert same_weights(*members)
    assert [member.model[0].weight.data_ptr() for member in members] == places


def test_a_newcomer_that_nobody_can_give_the_state_leaves_and_the_others_live(
    groups: list[Group],
) -> None:
    members = [Member(), Member(), Member(step=None)]
    for member in members[:2]:
        member.values["writer"] = object()
    first, second, newcomer = enter(groups, *members)
    assert isinstance(newcomer, StateError)
    assert "m0 cannot hand the state over: job.state.writer: a value of type object" in str(
        newcomer
    )
    assert [type(first), type(second)] == [WorldChanged, WorldChanged]  # into the next world


def test_survivors_whose_state_cannot_be_handed_over_go_on(groups: list[Group]) -> None:
    members = [Member(), Member(), Member()]
    for member in members:
        member.values["writer"] = object()
    assert [answer.received for answer in enter(groups, *members)] == [None] * 3


def test_another_member_gives_the_state_if_the_first_cannot(groups: list[Group]) -> None:
    members = [Member(), Member(), Member(step=None)]
    members[0].values["writer"] = object()
    answers = enter(groups, *members)
    assert received(answers[2]).source == "m1"
    assert "job.state.writer: a value of type object" in received(answers[0]).differed
    assert members[0].values == {"best": 1}


def test_a_state_dict_that_raises_does_not_end_the_training(groups: list[Group]) -> None:
    members = [Member(), Member(), Member(step=None)]

    def broken() -> Any:
        raise KeyError("lost")

    for member in members[:2]:
        member.optimizer.state_dict = broken  # type: ignore[method-assign]
    first, _, newcomer = enter(groups, *members)
    assert isinstance(first, WorldChanged)
    assert "the state cannot be captured: KeyError: 'lost'" in str(newcomer)


def test_members_on_other_terms_are_told_and_the_others_wait_for_the_next_world(
    groups: list[Group],
) -> None:
    terms = [Terms(options={"deterministic": n}) for n in (4, 4, 8)]
    trio = zip([Member(), Member(), Member()], groups, terms, strict=True)
    answers = outcomes(*(lambda m=m, g=g, t=t: m.enter(g, t) for m, g, t in trio))
    assert [type(answer) for answer in answers] == [WorldChanged, WorldChanged, StateError]
    assert "deterministic is 8 on m2 and 4 on m0" in str(answers[2])


def test_plans_are_the_same_only_if_everybody_knows_one(groups: list[Group]) -> None:
    for plans, same in (((8, 8, 8), True), ((8, 8, 9), False), ((8, 8, None), False)):
        terms = [Terms(plan=None if size is None else {"size": size}) for size in plans]
        trio = zip([Member(), Member(), Member()], groups, terms, strict=True)
        answers = outcomes(*(lambda m=m, g=g, t=t: m.enter(g, t) for m, g, t in trio))
        assert [answer.same_plan for answer in answers] == [same] * 3


def test_a_batch_that_depends_on_the_size_of_the_world_is_found_before_the_first_step(
    groups: list[Group],
) -> None:
    jobs = [mf.join(model=nn.Linear(1, 1)) for _ in groups]
    for job, group, size in zip(jobs, groups, (2, 2, 3), strict=True):
        job._session.driver.group = group
        job.sampler(range(1000), 64 * size)
    first, second, newcomer = outcomes(*(job._session._compare_plans for job in jobs))
    assert (first, second) == (True, True)
    assert isinstance(newcomer, DataError)
    assert "global_batch_size is 192 on m2 and 128 on m0" in str(newcomer)


# --- join(verify_every=...) ---------------------------------------------------------------------


def verify(groups: list[Group], members: list[Member], folder: str = "") -> list[Any]:
    ledgers = [Ledger(folder, f"m{rank}") for rank in range(len(groups))]
    trio = zip(members, groups, ledgers, strict=True)
    try:
        return outcomes(
            *(lambda m=m, g=g, j=j: Equality(5).verify(g, m.standpoint, j) for m, g, j in trio)
        )
    finally:
        for ledger in ledgers:
            ledger.close()


def test_members_that_are_equal_pass_the_comparison(groups: list[Group]) -> None:
    assert verify(groups, [Member(), Member(), Member()]) == [None] * 3


def test_a_member_whose_weights_differ_raises_and_names_itself_and_the_tensor(
    groups: list[Group], tmp_path: Path
) -> None:
    members = [Member(), Member(), Member()]
    with torch.no_grad():
        members[1].model[0].weight[5, 7] += 1e-6
    first, odd, last = verify(groups, members, str(tmp_path))
    assert (first, last) == (None, None)
    assert isinstance(odd, StateError)
    assert str(odd).startswith(
        "after 20 steps the state of m1 is not that of m0: the values of model[0.weight] differ"
    )
    (line,) = parse_comparisons("m1", (tmp_path / "m1.jsonl").read_text())
    assert (line.compared, line.progress) == ("verify", (2, 20, 0))
    assert not (tmp_path / "m0.jsonl").exists()


def test_a_plain_value_that_differs_is_named_with_both(groups: list[Group]) -> None:
    members = [Member(), Member(), Member()]
    members[2].values["best"] = 9
    assert "m2 is not that of m0: job.state.best is 9 here and 1 there" in str(
        verify(groups, members)[2]
    )


def test_a_comparison_is_due_every_so_many_steps_and_once_at_each(groups: list[Group]) -> None:
    equality, group = Equality(5), groups[0]
    assert [step for step in range(1, 12) if equality.is_due(step, group)] == [5, 10]
    equality.entered(group, Agreement(Claim(1, 10, 0)), 10, Ledger("", ""))
    assert not equality.is_due(10, group)
    assert not Equality(None).is_due(10, group)


def test_no_number_of_steps_below_1_is_taken() -> None:
    with pytest.raises(UsageError, match="verify_every is 0: give a number of steps, 1 or more"):
        mf.join(model=nn.Linear(1, 1), verify_every=0)
