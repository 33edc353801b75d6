import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midflight.errors import StateError
from midflight.runtime.state.relay import relay

MEMBERS = st.permutations(range(20)).flatmap(
    lambda order: st.tuples(st.integers(1, 6), st.integers(0, 14)).map(
        lambda cut: (order[: cut[0]], order[cut[0] : cut[0] + cut[1]])
    )
)


def test_one_newcomer_gets_the_state_from_the_first_holder_and_the_others_stay_out_of_it() -> None:
    assert relay([0, 1, 2], [3]) == (((0, 3),),)


def test_a_newcomer_that_has_it_gives_it_on() -> None:
    assert relay([0], [1, 2, 3]) == (((0, 1),), ((0, 2), (1, 3)))


def test_nobody_takes_part_when_nobody_lacks_the_state() -> None:
    assert relay([0, 1], []) == ()
    assert relay([], []) == ()


def test_a_state_that_nobody_holds_is_an_error_that_names_who_waits() -> None:
    with pytest.raises(StateError, match=r"nobody holds the state that members \[1, 4\] wait for"):
        relay([], [4, 1])


def test_a_member_cannot_hold_the_state_and_lack_it() -> None:
    with pytest.raises(StateError, match=r"members \[2\] cannot both"):
        relay([1, 2], [2, 3])


@given(MEMBERS)
def test_each_receiver_is_served_once_by_someone_who_has_it(
    members: tuple[list[int], list[int]],
) -> None:
    holders, receivers = members
    have = set(holders)
    served = []
    for pairs in relay(holders, receivers):
        assert {source for source, _ in pairs} <= have
        busy = [member for pair in pairs for member in pair]
        assert len(busy) == len(set(busy))
        served += [target for _, target in pairs]
        have |= set(served)
    assert served == receivers


@given(MEMBERS)
def test_the_number_of_rounds_grows_with_the_logarithm_of_the_receivers(
    members: tuple[list[int], list[int]],
) -> None:
    holders, receivers = members
    fewest = math.ceil(math.log2(1 + len(receivers) / len(holders)))
    assert len(relay(holders, receivers)) == fewest
