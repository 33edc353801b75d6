"""Which columns of a table stay where there is little room."""

import pytest

from midflight.cli.columns import Fit, fit
from midflight.cli.screen import wants_colour

JOBS = ("NAME", "STATUS", "TRAINER", "AGE", "NODE")
WIDTHS = (10, 9, 7, 3, 12)  # 49 in all, with the gaps
EVENTS = ("SOURCE", "TYPE", "AGE", "MESSAGE")


@pytest.mark.parametrize("room", [0, 49, 200])
def test_all_columns_stay_where_there_is_room_or_nobody_knows(room: int) -> None:
    assert fit(JOBS, WIDTHS, room) == Fit((0, 1, 2, 3, 4), 12, ())


def test_what_is_missed_least_goes_first_and_then_the_last() -> None:
    assert fit(JOBS, WIDTHS, 48) == Fit((0, 1, 3, 4), 12, (2,))
    assert fit(JOBS, WIDTHS, 30) == Fit((0, 1, 3), 3, (2, 4))
    assert fit(JOBS, WIDTHS, 21) == Fit((0, 1), 9, (2, 3, 4))


def test_the_first_two_stay_even_where_they_do_not_fit() -> None:
    assert fit(JOBS, WIDTHS, 5) == Fit((0, 1), 9, (2, 3, 4))


def test_a_column_of_sentences_gets_what_is_left() -> None:
    widths = (22, 7, 3, 200)
    assert fit(EVENTS, widths, 80) == Fit((0, 1, 2, 3), 42, ())
    assert fit(EVENTS, widths, 60) == Fit((0, 1, 3), 27, (2,))
    assert fit(EVENTS, widths, 40) == Fit((0, 1, 3), 200, (2,))


@pytest.mark.parametrize(
    ("choice", "terminal", "environ", "wanted"),
    [
        ("auto", True, {"TERM": "xterm"}, True),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        ("auto", True, {"TERM": "xterm", "NO_COLOR": "0"}, False),
        ("auto", True, {"TERM": "dumb"}, False),
        ("auto", True, {}, False),
        ("auto", False, {"TERM": "xterm"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_those_who_want_them(
    choice: str, terminal: bool, environ: dict[str, str], wanted: bool
) -> None:
    assert wants_colour(choice, terminal, environ) is wanted
