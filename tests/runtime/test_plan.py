"""The plan's arithmetic: every sample once, fair shares, true weights, whatever the worlds."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from midflight.errors import DataError
from midflight.runtime.data.plan import Cursor, Extent, Plan, Seat, micro_batches, share, weight

sizes = st.integers(1, 12)
plans = st.builds(
    Plan,
    samples=st.integers(12, 200),
    global_batch_size=st.integers(1, 12),
    micro_batch_size=st.none() | st.integers(1, 8),
    drop_last=st.booleans(),
)


@given(start=st.integers(0, 50), count=st.integers(1, 300), size=st.integers(1, 40))
def test_shares_tile_the_extent_and_differ_by_one_sample_at_most(
    start: int, count: int, size: int
) -> None:
    shares = [share(start, start + count, rank, size) for rank in range(size)]
    assert [p for a, b in shares for p in range(a, b)] == list(range(start, start + count))
    counts = [b - a for a, b in shares]
    assert max(counts) - min(counts) <= 1


@given(start=st.integers(0, 50), count=st.integers(1, 60), at_most=st.none() | st.integers(1, 70))
def test_micro_batches_tile_the_share_and_none_is_too_large(
    start: int, count: int, at_most: int | None
) -> None:
    slices = micro_batches(start, start + count, at_most)
    assert [p for a, b in slices for p in range(a, b)] == list(range(start, start + count))
    assert all(0 < b - a <= (at_most or count) for a, b in slices)


@given(plan=plans, size=sizes)
def test_the_average_over_the_members_weights_every_sample_alike(plan: Plan, size: int) -> None:
    extent = plan.extent_at(Cursor())
    pieces = [piece for rank in range(size) for piece in plan.pieces(extent, rank, size)]
    real = [piece for piece in pieces if piece.weight]
    assert sum(piece.stop - piece.start for piece in real) == extent.count
    assert sum(piece.weight for piece in pieces) / size == pytest.approx(1.0)
    for piece in real:  # a mean over the piece gives each sample weight / length
        each = Fraction(piece.weight).limit_denominator(10_000) / (piece.stop - piece.start) / size
        assert each == Fraction(1, extent.count)


@given(size=st.integers(1, 64), each=st.integers(1, 64))
def test_even_shares_weigh_exactly_one(size: int, each: int) -> None:
    assert weight(each, size, each * size) == 1.0


@given(plan=plans, size=sizes, data=st.data())
def test_each_member_has_exactly_one_last_piece_and_it_comes_last(
    plan: Plan, size: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, size - 1))
    pieces = plan.pieces(plan.extent_at(Cursor()), rank, size)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize(
    ("samples", "start", "placeholder"), [(10, 8, (8, 10)), (9, 8, (7, 9)), (1, 0, (0, 1))]
)
def test_a_member_without_a_share_gets_two_samples_with_no_weight(
    samples: int, start: int, placeholder: tuple[int, int], shards: int | None
) -> None:
    """Two, if there are as many: BatchNorm refuses to train on one."""
    plan = Plan(samples=samples, global_batch_size=8, shards=shards)
    extent = Extent(step=1, epoch=0, start=start, stop=samples)
    (piece,) = plan.pieces(extent, rank=2, size=3)
    assert (piece.start, piece.stop) == placeholder
    assert (piece.weight, piece.last) == (0.0, True)


@given(plan=plans, chance=st.randoms(use_true_random=False))
def test_every_epoch_uses_every_sample_once_through_resizes_and_failures(
    plan: Plan, chance: random.Random
) -> None:
    cursor, used = Cursor(), []
    for step in range(2 * plan.steps_per_epoch):
        cursor = plan.rolled(cursor)
        failures = chance.choice([0, 0, 0, 1, 2])
        for attempt in range(failures + 1):
            size = chance.randint(1, 12)
            extent = plan.extent_at(cursor)
            pieces = [p for rank in range(size) for p in plan.pieces(extent, rank, size)]
            if attempt == failures:
                used += [
                    (cursor.epoch, i) for p in pieces if p.weight for i in range(p.start, p.stop)
                ]
                cursor = extent.after
        assert cursor.step == step + 1
    kept = plan.steps_per_epoch * plan.global_batch_size if plan.drop_last else plan.samples
    assert used == [(epoch, i) for epoch in range(2) for i in range(kept)]
    assert plan.complete(cursor, epochs=2)
    assert not plan.complete(cursor, epochs=3)


def test_the_end_of_an_epoch_is_not_the_start_of_the_next() -> None:
    plan = Plan(samples=5, global_batch_size=3)
    end = plan.extent_at(Cursor(step=1, epoch=0, position=3)).after
    assert end == Cursor(step=2, epoch=0, position=5)
    assert plan.ended(end)
    assert plan.rolled(end) == Cursor(step=2, epoch=1, position=0)
    assert plan.rolled(plan.rolled(end)) == plan.rolled(end)
    with pytest.raises(ValueError, match="roll it over"):
        plan.extent_at(end)


def test_an_extent_knows_the_cursor_before_and_after_it() -> None:
    cursor = Cursor(step=4, epoch=2, position=6)
    extent = Plan(samples=20, global_batch_size=6).extent_at(cursor)
    assert extent.before == cursor
    assert extent.after == Cursor(step=5, epoch=2, position=12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0, "global_batch_size": 1}, "dataset is empty"),
        ({"samples": 9, "global_batch_size": 0}, "global_batch_size is 0"),
        ({"samples": 9, "global_batch_size": 2.5}, r"global_batch_size is 2\.5"),
        ({"samples": 9, "global_batch_size": 3, "micro_batch_size": -1}, "micro_batch_size is -1"),
        ({"samples": 9, "global_batch_size": 3, "epochs": -2}, "epochs is -2"),
        ({"samples": 9, "global_batch_size": 10, "drop_last": True}, "drop_last drops them all"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Plan(**settings)


def test_a_dataset_smaller_than_the_world_is_refused() -> None:
    plan = Plan(samples=3, global_batch_size=8)
    plan.check_world(3)
    with pytest.raises(DataError, match="dataset has 3 samples, the world has 4 members: start"):
        plan.check_world(4)


def test_a_seat_has_a_rank_below_its_size() -> None:
    with pytest.raises(ValueError, match="no rank 2 in a world of 2"):
        Seat(generation=1, rank=2, size=2)


def test_a_member_that_does_not_share_yet_gets_a_placeholder_and_the_others_its_part() -> None:
    plan = Plan(samples=100, global_batch_size=12)
    extent = plan.extent_at(Cursor())
    shares = [plan.pieces(extent, rank, 3, sharers=2) for rank in range(3)]
    assert [(p.start, p.stop) for (p,) in shares[:2]] == [(0, 6), (6, 12)]
    assert sum(piece.weight for (piece,) in shares) == 3.0  # the average is still over all members
    assert shares[2][0].weight == 0.0
