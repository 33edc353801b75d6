"""The arithmetic on the step logs, on logs written by hand."""

import pytest

from bench.steps import (
    Line,
    block_step_time,
    by_who,
    first_step,
    longest_gap,
    longest_wait,
    members,
    parse,
    reached,
    step_time,
    steps_lost,
    switch_gap,
    up_to,
)


def log(who: int, *entries: tuple[float, int, int]) -> list[Line]:
    """Lines of one process from (time, step, size)."""
    return [Line(who=who, pid=who, t=t, step=step, size=size) for t, step, size in entries]


def steady(who: int, *times: float, size: int = 2) -> list[Line]:
    return log(who, *((t, step, size) for step, t in enumerate(times, start=1)))


def test_a_line_that_is_still_being_written_is_left_out() -> None:
    whole = '{"who": 1, "pid": 2, "t": 3.5, "step": 4, "size": 5}\n'
    assert parse(whole + '{"who": 1, "pi') == [Line(who=1, pid=2, t=3.5, step=4, size=5)]
    assert parse('{"who"') == []


def test_lines_are_grouped_by_who_in_the_order_of_time() -> None:
    late, early = steady(1, 2.0), steady(1, 1.0)
    assert [line.t for line in by_who([*late, *steady(2, 1.5), *early])[1]] == [1.0, 2.0]


def test_the_step_time_is_the_median_over_all_members() -> None:
    lines = steady(1, 0.0, 1.0, 2.0, 12.0) + steady(2, 0.0, 3.0)
    assert step_time(lines, 2, since=0.0) == pytest.approx(2.0)  # of 1, 1, 3 and 10


def test_the_step_time_of_a_size_counts_only_steps_between_two_of_that_size() -> None:
    lines = log(1, (0, 1, 2), (1, 2, 2), (9, 3, 3), (12, 4, 3), (15, 5, 3))
    assert step_time(lines, 3, since=0.0) == 3
    assert step_time(lines, 2, since=0.0) == 1


def test_the_step_time_of_any_size_leaves_the_switch_out() -> None:
    lines = log(1, (0, 1, 2), (1, 2, 2), (99, 3, 3), (100, 4, 3))
    assert step_time(lines, None, since=0.0) == 1


def test_a_step_time_counts_no_gap_that_began_too_early() -> None:
    lines = steady(1, 0.0, 10.0, 11.0)
    assert step_time(lines, 2, since=1.0) == 1.0


def test_a_step_time_without_steps_is_an_error_that_names_the_size() -> None:
    with pytest.raises(ValueError, match="size 3"):
        step_time(steady(1, 0.0, 1.0), 3, since=0.0)


def test_a_block_begins_its_clock_at_the_end_of_its_first_step() -> None:
    lines = steady(1, 0.0, 50.0, 51.0, 52.0, 99.0)
    assert block_step_time(lines, first=2, last=4) == 1.0


def test_the_longest_gap_includes_the_one_that_the_event_fell_into() -> None:
    own = steady(1, 0.0, 5.0, 6.0, 8.0)
    assert longest_gap(own, since=4.0) == 5.0
    assert longest_gap(own, since=5.0) == 2.0


def test_a_wait_counts_from_the_event_on() -> None:
    assert longest_wait(steady(1, 0.0, 5.0, 6.0), event=4.5) == 1.0
    assert longest_wait(steady(1, 0.0, 5.0, 6.0), event=1.0) == 4.0


def test_a_step_that_still_completed_after_the_death_does_not_hide_the_wait() -> None:
    assert longest_wait(steady(1, 0.0, 1.1, 4.0, 5.0), event=1.0) == pytest.approx(2.9)


def test_only_the_first_steps_after_an_event_can_be_asked_for() -> None:
    own = steady(1, 0.0, 1.0, 2.0, 3.0, 4.0)
    assert [line.t for line in up_to(own, event=1.5, count=2)] == [0.0, 1.0, 2.0, 3.0]


def test_the_switch_is_the_interval_in_which_the_size_changed() -> None:
    own = log(1, (0, 1, 2), (1, 2, 2), (3.5, 3, 3), (9, 4, 3))
    assert switch_gap(own, 3, since=0.5) == 2.5


def test_a_switch_that_never_came_is_an_error() -> None:
    with pytest.raises(ValueError, match="size 4"):
        switch_gap(steady(1, 0.0, 1.0), 4, since=0.0)


def test_a_newcomers_first_step_counts_from_the_request() -> None:
    lines = steady(1, 0.0, 1.0, 2.0) + steady(7, 1.75, 2.0)
    assert first_step(lines, {7}, since=0.5) == 1.25


def test_no_step_is_lost_when_the_numbers_just_go_on() -> None:
    assert steps_lost(steady(1, 0.0, 1.0, 2.0) + steady(2, 0.0, 1.0, 2.0)) == 0


def test_steps_that_a_survivor_does_again_are_lost() -> None:
    own = log(1, (0, 9, 3), (1, 10, 3), (5, 9, 2), (6, 10, 2), (7, 11, 2))
    assert steps_lost(own + log(2, (0, 9, 3), (5, 9, 2))) == 2  # 9 and 10


def test_steps_that_nobody_completed_are_lost() -> None:
    assert steps_lost(log(1, (0, 9, 3), (5, 12, 2)) + log(2, (0, 9, 3), (5, 12, 2))) == 2


def test_a_step_that_another_survivor_completed_is_not_lost() -> None:
    ahead, behind = log(1, (0, 9, 3), (1, 10, 3), (5, 11, 2)), log(2, (0, 9, 3), (5, 11, 2))
    assert steps_lost(ahead + behind) == 0


def test_members_have_made_enough_steps_at_the_size_since_then() -> None:
    lines = steady(1, 0.0, 1.0, 2.0) + steady(2, 1.0, 2.0) + steady(3, 1.0, 2.0, size=3)
    assert members(lines, 2, since=0.5, count=2) == {1, 2}
    assert members(lines, 2, since=1.5, count=2) == set()


def test_who_has_reached_a_step() -> None:
    assert reached(steady(1, 0.0, 1.0) + steady(2, 0.0), step=2) == {1}
