"""Messages do what frozen dataclasses do."""

from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from midflight.protocol.message import message


@message
class Point:
    x: int
    y: int = 0


@message
class Other:
    x: int
    y: int = 0


@dataclass(frozen=True)
class Usual:
    x: int
    y: int = 0


def test_a_message_is_equal_to_one_of_its_kind_with_the_same_values() -> None:
    assert Point(1) == Point(1, 0)
    assert Point(1) != Point(2)
    other: object = Other(1)
    assert Point(1) != other
    assert len({Point(1), Point(1), Point(2)}) == 2
    assert replace(Point(1), y=3) == Point(1, 3)


def test_a_message_is_shown_as_a_dataclass_is() -> None:
    assert repr(Point(1)) == repr(Usual(1)).replace("Usual", "Point")


def test_a_message_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        setattr(point, "x", 2)  # noqa: B010
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert point == Point(1)
