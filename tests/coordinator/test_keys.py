"""The keys of a generation: waited for, counted up once for each question, forgotten with it."""

import pytest

from midflight.coordinator.keys import Keys
from midflight.errors import ProtocolError


def test_who_wants_keys_is_answered_when_the_last_of_them_is_there() -> None:
    keys = Keys()
    heard: list[object] = []
    keys.want(1, ("a", "b"), heard.append)
    keys.set(1, "b", "2")
    assert heard == []
    keys.set(1, "a", "1")
    assert heard == [("1", "2")]
    keys.want(1, ("b",), heard.append)
    assert heard[1:] == [("2",)]


def test_a_question_that_is_asked_again_after_a_reconnect_counts_once() -> None:
    keys = Keys()
    assert keys.add(1, "count", 1, ("m0", 5)) == "1"
    assert keys.add(1, "count", 1, ("m1", 5)) == "2"
    assert keys.add(1, "count", 1, ("m0", 5)) == "1"
    assert keys.add(1, "count", 1, ("m0", 6)) == "3"


def test_nothing_is_added_to_what_is_no_number() -> None:
    keys = Keys()
    keys.set(1, "word", "text")
    with pytest.raises(ProtocolError, match="'word' is not a number"):
        keys.add(1, "word", 1, ("m0", 1))


def test_a_generation_is_forgotten_with_its_keys() -> None:
    keys = Keys()
    heard: list[object] = []
    keys.set(1, "a", "old")
    keys.forget_before(2)
    keys.want(1, ("a",), heard.append)
    assert heard == []
