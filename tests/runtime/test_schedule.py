"""Which seat is valid from which step on, and what becomes stale."""

from midflight.runtime.data.plan import Seat
from midflight.runtime.data.schedule import Schedule


def seat(generation: int, rank: int = 0, size: int = 4) -> Seat:
    return Seat(generation, rank, size)


def generations(schedule: Schedule, steps: int) -> list[int]:
    return [schedule.at(step).generation for step in range(steps)]


def test_a_foreseen_seat_is_valid_from_its_step_on() -> None:
    schedule = Schedule(seat(1))
    assert schedule.foresee(2, seat(2))
    assert schedule.foresee(4, seat(3))
    assert generations(schedule, 6) == [1, 1, 2, 2, 3, 3]


def test_a_switch_may_be_foreseen_for_the_very_first_step() -> None:
    schedule = Schedule(seat(1))
    schedule.foresee(0, seat(2))
    assert generations(schedule, 2) == [2, 2]


def test_foreseeing_makes_only_the_steps_from_there_on_stale() -> None:
    schedule = Schedule(seat(1))
    before = [schedule.ticket(step) for step in range(4)]
    schedule.foresee(2, seat(2))
    assert [schedule.ticket(step) == before[step] for step in range(4)] == [
        True,
        True,
        False,
        False,
    ]


def test_a_withdrawn_switch_makes_what_was_issued_before_it_valid_again() -> None:
    schedule = Schedule(seat(1))
    before = schedule.ticket(3)
    schedule.foresee(2, seat(2))
    assert schedule.withdraw(2)
    assert schedule.ticket(3) == before
    assert not schedule.withdraw(2)
    assert not schedule.withdraw(1)  # the present seat cannot be withdrawn


def test_a_switch_that_is_announced_again_moves() -> None:
    schedule = Schedule(seat(1))
    schedule.foresee(2, seat(2))
    schedule.foresee(4, seat(2, rank=1))
    assert generations(schedule, 6) == [1, 1, 1, 1, 2, 2]
    assert schedule.at(4).rank == 1


def test_replacing_makes_everything_stale_even_with_an_equal_seat() -> None:
    schedule = Schedule(seat(1))
    schedule.foresee(2, seat(2))
    before = [schedule.ticket(step) for step in range(4)]
    assert schedule.replace(seat(2))
    assert generations(schedule, 4) == [2, 2, 2, 2]
    assert all(schedule.ticket(step) != before[step] for step in range(4))
    assert schedule.era == 1


def test_a_switch_to_a_newer_world_survives_a_replacement_that_comes_late() -> None:
    schedule = Schedule(seat(1))
    schedule.foresee(5, seat(3))
    schedule.replace(seat(2))
    assert schedule.at(4).generation == 2
    assert schedule.at(5).generation == 3


def test_news_of_an_older_generation_is_ignored() -> None:
    schedule = Schedule(seat(5))
    assert not schedule.foresee(1, seat(5))
    assert not schedule.replace(seat(4))
    schedule.foresee(9, seat(8))
    assert not schedule.foresee(7, seat(7))
    assert generations(schedule, 10) == [5] * 9 + [8]
    assert schedule.era == 0


def test_within_a_generation_a_seat_with_more_sharers_is_newer() -> None:
    schedule = Schedule(Seat(2, 0, 3, 2))
    assert schedule.foresee(9, Seat(2, 0, 3))
    assert [schedule.at(step).sharers for step in (8, 9)] == [2, None]
    assert not schedule.foresee(12, Seat(2, 0, 3, 2))
