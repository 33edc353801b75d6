"""What the records of a run amount to."""

import pytest

from midflight.flight import summary
from midflight.flight.plan import Band, Plan, plan
from midflight.flight.records import (
    Begun,
    Ended,
    Formed,
    Joined,
    Logged,
    Lost,
    Over,
    Paused,
    Place,
    Progress,
    Record,
    Settled,
    as_line,
    parse,
)
from midflight.protocol.pause import Pause


def formed(t: float, generation: int, step: int, cause: str, *names: str) -> Formed:
    return Formed(t, generation, step, cause, tuple(Place(name, f"h{name[1:]}") for name in names))


def paused(t: float, generation: int, seconds: float, member: str = "m0") -> Paused:
    pause = Pause(seconds, 0.0, 0.0, 0.0, 0.01, 0.01)
    return Paused(t, member, generation, 0, planned=False, pause=pause)


FLIGHT: list[Record] = [
    Begun(0.0, "mine", 1e9, 2, 1, 4),
    Joined(2.0, "m0", "h0"),
    Joined(2.1, "m1", "h1"),
    formed(3.0, 1, 0, "start", "m0", "m1"),
    Progress(4.0, 10, 100),
    Joined(4.5, "m2", "h2"),
    formed(5.0, 2, 20, "request", "m0", "m1", "m2"),
    paused(5.1, 2, 0.02),
    paused(5.1, 2, 0.03, "m1"),
    Logged(6.0, 30, 0, {"loss": 0.5, "lr": 0.1}),
    Progress(6.0, 30, 300),
    Settled(6.5, "r9", False, "no room"),
    Lost(7.0, "m1", "h1", "m1: its process is gone"),
    formed(7.1, 3, 40, "failure", "m0", "m2"),
    Ended(7.2, "m1", "killed by SIGKILL"),
    paused(7.2, 3, 0.5),
    Logged(8.0, 45, 0, {"loss": None}),
    Progress(8.0, 50, 500),
    Over(10.0, 50, "succeeded", ""),
]


def test_each_member_has_a_band_from_its_joining_to_its_leaving() -> None:
    assert plan(FLIGHT).bands == (
        Band("m0", "h0", 2.0, 3.0, 10.0),
        Band("m1", "h1", 2.1, 3.0, 7.0, "lost: killed by SIGKILL"),
        Band("m2", "h2", 4.5, 5.0, 10.0),
    )


def test_each_change_has_its_cause_and_the_longest_pause_of_a_member() -> None:
    start, grown, failure = plan(FLIGHT).changes
    assert (start.before, start.after, start.pause) == (0, 2, None)
    assert (grown.cause, grown.before, grown.after, grown.step) == ("resize", 2, 3, 20)
    assert grown.pause is not None and grown.pause.seconds == pytest.approx(0.03)
    assert (failure.cause, failure.before, failure.after) == ("failure", 3, 2)
    assert failure.detail == "m1: its process is gone"
    assert failure.is_failure


def test_the_throughput_is_what_was_done_from_one_record_to_the_next() -> None:
    first, second = plan(FLIGHT).rates
    assert (first.begin, first.end, first.steps, first.samples) == (4.0, 6.0, 10.0, 100.0)
    assert (second.steps, second.samples) == (10.0, 100.0)


def test_a_short_run_has_one_rate_all_the_same() -> None:
    short = [Progress(1.0, 1, 10), Progress(1.1, 2, 20), Progress(1.4, 5, 50)]
    (rate,) = plan(short).rates
    assert (rate.begin, rate.end, round(rate.steps)) == (1.0, 1.4, 10)


def test_values_that_were_logged_are_series_in_which_what_is_no_number_is_a_gap() -> None:
    assert plan(FLIGHT).logged == {"loss": ((6.0, 0.5), (8.0, None)), "lr": ((6.0, 0.1),)}


def test_a_run_that_goes_on_is_drawn_up_to_its_last_record() -> None:
    found = plan(FLIGHT[:-1])
    assert (found.phase, found.end) == ("", 8.0)
    assert {band.end for band in found.bands} == {7.0, 8.0}


def test_who_is_let_go_has_left_for_the_reason_of_the_change() -> None:
    found = plan([formed(1.0, 1, 0, "start", "m0", "m1"), formed(2.0, 2, 9, "notice", "m0")])
    assert found.bands[1] == Band("m1", "h1", 1.0, 1.0, 2.0, "left: preemption")


def test_nothing_is_a_plan_too() -> None:
    assert plan([]) == Plan()


def test_lines_that_are_cut_off_foreign_or_from_a_later_release_are_passed_over() -> None:
    lines = [as_line(record) for record in FLIGHT]
    damaged = [
        "",
        '{"kind": "progress", "t": 31.0, "st',
        '{"kind": "teleported", "t": 1.0}',
        '{"kind": ["x"], "t": 1.0}',
        '{"kind": "over", "t": 1e999, "step": 1, "phase": "", "detail": ""}',
        "[" * 100_000,
        "\ud800",
        *lines,
    ]
    assert parse(damaged) == FLIGHT


def test_records_are_in_the_order_of_their_time() -> None:
    assert parse(as_line(record) for record in reversed(FLIGHT))[0] == FLIGHT[0]


def test_the_summary_says_what_was_done_and_where_the_time_went() -> None:
    assert summary.lines(plan(FLIGHT)) == [
        "50 steps, 500 samples, 100 samples/s in 0:10",
        "goodput 45 % (start 3.0 s, pauses 530 ms, end 2.0 s)",
        "1 change by resize: paused 30 ms",
        "1 change by failure: paused 500 ms",
    ]


def test_changes_of_one_cause_are_summed_up_in_one_line() -> None:
    more: list[Record] = []
    for number in range(4, 7):
        more += [formed(8.0 + number, number, 50, "request", "m0"), paused(9.0, number, 0.1)]
    said = summary.lines(plan(sorted([*FLIGHT[:-1], *more], key=lambda record: record.t)))
    assert "4 changes by resize: paused 100 ms (median), 100 ms at most" in said


def test_a_run_without_a_step_has_no_summary() -> None:
    assert summary.lines(plan(FLIGHT[:4])) == []
