"""The step of a planned change: soon enough, and no earlier than need be."""

import pytest

from midflight.coordinator.core.state import MemberState, Stage
from midflight.coordinator.core.switch_step import switch_step

NOW = 1000.0
NOTICE = 30.0
PREFETCHED = 8 * 2  # 8 loader workers, 2 batches ahead each


def member(
    name: str = "m0", *, step: int = 100, seconds: float = 0.1, **what: float
) -> MemberState:
    """One that takes so long for a step, and has prefetched data."""
    begun, silent = what.pop("begun", 0.0), what.pop("silent", 0.0)
    return MemberState(
        name,
        "h0",
        0,
        "",
        born_at=0.0,
        stage=Stage.ACTIVE,
        connected=True,
        holds_state=True,
        step=step,
        horizon=int(what.pop("horizon", step + PREFETCHED)),
        rate=1 / seconds,
        heard_at=NOW - silent,
        stepped_at=NOW - silent - begun,
    )


def seconds_until(step: int, by: MemberState) -> float:
    """When such a member begins this step, if all steps take as long as the last ones."""
    assert by.stepped_at is not None
    return by.stepped_at + (step - by.step) / by.rate - NOW


@pytest.mark.parametrize("seconds", [0.01, 0.1, 0.5, 2.0, 10.0, 25.0])
@pytest.mark.parametrize("begun", [0.0, 0.3, 0.9])
def test_a_notice_is_kept_with_prefetched_data_and_long_steps(seconds: float, begun: float) -> None:
    one = member(seconds=seconds, begun=begun * seconds)
    step = switch_step([one], one.step, NOW, until=NOW + NOTICE)
    assert step > one.step
    assert seconds_until(step, one) < NOTICE - 2.0  # it has to end, too


def test_a_change_that_nobody_is_in_a_hurry_for_does_not_wait_for_long_either() -> None:
    one = member(seconds=2.0)
    assert seconds_until(switch_step([one], one.step, NOW), one) <= 8.0
    slow = member(seconds=20.0)
    assert switch_step([slow], slow.step, NOW) == slow.step + 1


def test_nothing_that_was_prefetched_is_dropped_if_that_costs_little_time() -> None:
    one = member(seconds=0.05)
    step = switch_step([one], one.step, NOW, until=NOW + NOTICE)
    assert step == one.horizon + 1


def test_fast_steps_leave_the_news_time_to_arrive() -> None:
    one = member(seconds=0.002, horizon=0)
    assert switch_step([one], one.step, NOW) >= one.step + 15


def test_a_step_that_ends_after_the_notice_is_given_up_at_once() -> None:
    one = member(seconds=40.0, begun=5.0)
    assert switch_step([one], one.step, NOW, until=NOW + NOTICE) == one.step


def test_a_long_step_that_ends_within_the_notice_is_completed() -> None:
    one = member(seconds=40.0, begun=30.0)
    assert switch_step([one], one.step, NOW, until=NOW + NOTICE) == one.step + 1


def test_a_silent_member_does_not_put_the_switch_off() -> None:
    fresh = member("m0", step=130, seconds=0.1, horizon=0)
    silent = member("m1", step=100, seconds=0.1, silent=60.0, horizon=0)
    alone = switch_step([fresh], 130, NOW)
    assert alone <= switch_step([fresh, silent], 130, NOW) <= alone + 1


def test_if_all_are_silent_the_one_heard_last_counts() -> None:
    late, later = (member(n, seconds=0.1, silent=s, horizon=0) for n, s in (("m0", 5), ("m1", 60)))
    assert switch_step([late, later], 100, NOW) - 100 in range(50, 54)


def test_a_world_whose_pace_is_unknown_changes_at_its_next_boundary() -> None:
    one = MemberState("m0", "h0", 0, "", born_at=0.0, connected=True, horizon=PREFETCHED)
    assert switch_step([one], 0, NOW, until=NOW + NOTICE) == 1
