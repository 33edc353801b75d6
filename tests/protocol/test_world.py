"""Ranks follow from the ordered list alone."""

import pytest

from midflight.protocol.world import Member, World

WORLD = World(
    3,
    (
        Member("a", "h0", 0, "10.0.0.1"),
        Member("b", "h1", 0, "10.0.0.2"),
        Member("c", "h0", 1, "10.0.0.1"),
    ),
)


def test_ranks_are_places_in_the_list() -> None:
    assert [WORLD.rank(name) for name in "abc"] == [0, 1, 2]
    assert WORLD.size == 3
    assert WORLD.names == ("a", "b", "c")


def test_local_ranks_count_those_on_the_same_host() -> None:
    assert [WORLD.local_rank(name) for name in "abc"] == [0, 0, 1]
    assert [WORLD.local_size(name) for name in "abc"] == [2, 1, 2]
    assert [WORLD.host_rank(name) for name in "abc"] == [0, 1, 0]


def test_a_stranger_has_no_rank() -> None:
    assert "a" in WORLD and "z" not in WORLD and None not in WORLD
    with pytest.raises(KeyError):
        WORLD.rank("z")


def test_worlds_are_equal_if_generation_and_members_are() -> None:
    assert World(3, WORLD.members) == WORLD
    assert World(4, WORLD.members) != WORLD
