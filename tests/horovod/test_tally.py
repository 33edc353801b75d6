"""Rank 0's count of requests: pure, every order of arrival."""

import itertools

import pytest

from midflight.compat.horovod.engine.requests import (
    ADD_SET,
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    JOIN,
    REMOVE_SET,
    Request,
)
from midflight.compat.horovod.engine.tally import Tally


def reduce(name: str, shape: tuple[int, ...] = (2,), **more: object) -> Request:
    return Request(name, ALLREDUCE, (shape,), ("float32",), op="sum", **more)


def told(tally: Tally) -> list[str]:
    return [name for response in tally.ready() for name in response.names]


@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 2])))
def test_a_collective_goes_ahead_when_the_last_rank_has_asked(order: tuple[int, ...]) -> None:
    tally = Tally(3)
    for rank in order[:-1]:
        tally.add(rank, [reduce("a")], 0.0)
        assert tally.ready() == []
    tally.add(order[-1], [reduce("a")], 0.0)
    assert told(tally) == ["a"]
    assert tally.ready() == []


def test_ranks_may_ask_in_different_orders_and_wait_in_between() -> None:
    tally = Tally(2)
    tally.add(0, [reduce("a"), reduce("b")], 0.0)
    tally.add(1, [reduce("b")], 0.0)
    assert told(tally) == ["b"]
    tally.add(1, [reduce("a")], 0.0)
    assert told(tally) == ["a"]


def test_allreduces_that_are_ready_together_are_told_as_one() -> None:
    tally = Tally(2)
    for rank in (0, 1):
        tally.add(rank, [reduce("a"), reduce("b"), Request("c", BARRIER), reduce("d")], 0.0)
    assert [r.names for r in tally.ready()] == [("a", "b"), ("c",), ("d",)]


@pytest.mark.parametrize(
    ("other", "word"),
    [
        (reduce("a", (3,)), "shapes"),
        (Request("a", ALLREDUCE, ((2,),), ("float64",), op="sum"), "data type"),
        (Request("a", ALLREDUCE, ((2,),), ("float32",), op="max"), "reduction op"),
        (reduce("a", postscale=2.0), "postscale"),
        (Request("a", BROADCAST, ((2,),), ("float32",), op="sum"), "operation"),
        (Request("a", ALLREDUCE, ((2,),), ("float32",), "cuda", op="sum"), "device"),
    ],
)
def test_ranks_that_ask_for_different_things_all_hear_what_differs(
    other: Request, word: str
) -> None:
    tally = Tally(2)
    tally.add(0, [reduce("a")], 0.0)
    tally.add(1, [other], 0.0)
    (response,) = tally.ready()
    assert word in response.error and "rank 0" in response.error and "rank 1" in response.error


def test_rows_may_differ_where_they_are_put_together() -> None:
    tally = Tally(2)
    for rank in (0, 1):
        tally.add(rank, [Request("g", ALLGATHER, ((rank + 1, 4),), ("float32",))], 0.0)
        split = (rank, 1)
        tally.add(rank, [Request("t", ALLTOALL, ((rank + 1,),), ("int64",), splits=split)], 0.0)
    gathered, exchanged = tally.ready()
    assert gathered.rows == ((1, 2),)
    assert exchanged.splits == ((0, 1), (1, 1))


def test_a_rank_that_has_joined_is_not_waited_for() -> None:
    tally = Tally(3)
    tally.add(0, [Request("join", JOIN)], 0.0)
    for rank in (1, 2):
        tally.add(rank, [reduce("a"), Request("g", ALLGATHER, ((1,),), ("float32",))], 0.0)
    reduced, gathered = tally.ready()
    assert reduced.template == (reduce("a"),)
    assert "joined" in gathered.error
    tally.add(2, [Request("join", JOIN)], 0.0)
    assert tally.ready() == []
    tally.add(1, [Request("join", JOIN)], 0.0)
    (response,) = tally.ready()
    assert response.last == 1


def test_process_sets_are_made_once_and_have_their_own_names() -> None:
    tally = Tally(3)
    for rank in range(3):
        tally.add(rank, [Request("add", ADD_SET, ranks=(0, 2))], 0.0)
    (made,) = tally.ready()
    assert made.number == 1
    tally.add(0, [reduce("a", process_set=1), reduce("a")], 0.0)
    tally.add(2, [reduce("a", process_set=1)], 0.0)
    (response,) = tally.ready()
    assert response.process_set == 1
    for rank in range(3):
        tally.add(rank, [Request("add", ADD_SET, ranks=(0, 2))], 0.0)
    assert "same ranks" in tally.ready()[0].error
    for rank in range(3):
        tally.add(rank, [Request("remove", REMOVE_SET, ranks=(0, 2))], 0.0)
    assert tally.ready()[0].number == 1


def test_what_some_ranks_wait_for_too_long_is_named_once_with_those_who_lack() -> None:
    tally = Tally(3)
    tally.add(1, [reduce("slow")], 10.0)
    assert tally.stalled(60.0, 60.0) == {}
    assert tally.stalled(70.0, 60.0) == {"slow": [0, 2]}
    assert tally.stalled(80.0, 60.0) == {}
    assert tally.oldest(75.0) == 65.0
