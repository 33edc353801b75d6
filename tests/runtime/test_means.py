"""What members log is averaged at steps that all of them know."""

import math

import pytest

from midflight.runtime.group.means import MOST, Means
from tests.runtime.handing import together
from tests.runtime.worlds import connected


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (0, 0)])
def test_numbers_are_averaged_by_how_many_samples_each_has_used(weights: tuple[int, int]) -> None:
    with connected(2) as groups:
        taken = together(
            *(
                lambda rank=rank: Means(1.0).take(
                    groups[rank], 5, {"loss": float(rank), "big": 2e300}, weights[rank]
                )
                for rank in range(2)
            )
        )
    share = weights[1] / sum(weights) if any(weights) else 0.5
    assert taken == [{"loss": share, "big": 2e300}] * 2


def test_a_member_without_samples_spoils_nothing_and_other_names_are_left_out() -> None:
    logged = [{"a": 1.0}, {"a": math.nan}, {"b": 7.0}]
    with connected(3) as groups:
        taken = together(
            *(
                lambda rank=rank: Means(1.0).take(groups[rank], 5, logged[rank], (2, 0, 2)[rank])
                for rank in range(3)
            )
        )
    assert taken == [{"a": 1.0}, {"a": 1.0}, {"b": 7.0}]


def test_as_many_numbers_as_there_may_be_come_through() -> None:
    many = {str(n): n / 7 for n in range(MOST)}
    with connected(2) as groups:
        taken = together(
            *(lambda group=group: Means(1.0).take(group, 1, many, 1) for group in groups)
        )
    assert taken == [many, many]


def test_members_meet_at_the_first_step_of_a_world_and_then_as_rank_0_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr("midflight.runtime.group.means.time.monotonic", lambda: clock[0])
    first, second = Means(1.0), Means(50.0)  # whose own wish does not count
    with connected(2, generation=4) as groups:

        def meet(step: int) -> None:
            assert first.are_due(4, step) and second.are_due(4, step)
            together(
                lambda: first.take(groups[0], step, {"a": 1.0}, 1),
                lambda: second.take(groups[1], step, {"a": 1.0}, 1),
            )

        meet(7)
        clock[0] += 0.1  # for a step, so that ten are a second
        meet(8)
        assert not first.are_due(4, 17) and not second.are_due(4, 17)
        assert first.are_due(4, 18) and second.are_due(4, 18)
        assert first.are_due(5, 9) and second.are_due(5, 9)
