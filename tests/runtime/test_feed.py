"""The feed: the right batch at each step, with real DataLoaders and a world that changes."""

import itertools
import random
import threading
from typing import Any

import pytest

from midflight.errors import DataError
from midflight.runtime.data.feed import Feed
from midflight.runtime.data.loader import Batch, build_loader
from midflight.runtime.data.plan import Cursor, Plan, Seat, share
from midflight.runtime.data.sampler import ElasticBatchSampler
from tests.runtime.cluster import Cluster, FakeSession, Numbers, feed_for, train, used

ALONE = Seat(generation=1, rank=0, size=1)


# ------------------------------------------------------------------ the whole job, as it may go


def every_sample_counts_once(
    plan: Plan, size: int, workers: int, seed: int, prefetch: int | None = None
) -> None:
    cluster = Cluster(plan, size, workers, random.Random(seed), prefetch)
    try:
        cluster.run()
    finally:
        cluster.close()
    expected = itertools.product(range(plan.epochs or 0), range(plan.samples))
    assert sorted(cluster.ledger) == list(expected)


@pytest.mark.parametrize("seed", range(40))
def test_every_sample_counts_once_through_random_resizes_and_failures(seed: int) -> None:
    micro = [None, 1, 2, 3][seed % 4]
    plan = Plan(samples=41, global_batch_size=6, micro_batch_size=micro, seed=seed, epochs=2)
    every_sample_counts_once(plan, size=1 + seed % 3, workers=0, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_every_sample_counts_once_with_workers_that_load_ahead(seed: int) -> None:
    micro = [None, 2][seed % 2]
    plan = Plan(samples=31, global_batch_size=5, micro_batch_size=micro, seed=seed, epochs=2)
    every_sample_counts_once(plan, size=1 + seed % 2, workers=2, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_every_sample_counts_once_if_all_switches_are_within_what_is_prefetched(seed: int) -> None:
    micro = [None, 2][seed % 2]
    plan = Plan(samples=61, global_batch_size=5, micro_batch_size=micro, seed=seed, epochs=2)
    every_sample_counts_once(plan, size=1 + seed % 2, workers=1, seed=seed, prefetch=16)


# --------------------------------------------------------------- what is loaded ahead, and stale


def test_a_switch_beyond_the_horizon_wastes_nothing() -> None:
    session = FakeSession(Seat(1, 0, 1))
    feed = feed_for(session, Plan(samples=64, global_batch_size=4, epochs=1), workers=2)
    switch = 0
    for batch in feed:
        if batch.step == 2:
            switch = feed.sampler.horizon + 1
            assert switch > 3  # the workers are ahead of the loop
            assert session.schedule.foresee(switch, Seat(2, 1, 2))
        assert len(batch.indices) == (2 if switch and batch.step >= switch else 4)
        session.complete()
    feed.close()
    assert feed.dropped == 0


def test_a_switch_within_the_horizon_costs_the_batches_loaded_for_the_old_world() -> None:
    session = FakeSession(Seat(1, 0, 1))
    feed = feed_for(session, Plan(samples=64, global_batch_size=4, epochs=1), workers=2)
    seats = {}
    for batch in feed:
        if batch.step == 2:
            session.schedule.foresee(3, Seat(2, 1, 2))
        seats[batch.step] = batch.issued.seat.generation
        session.complete()
    feed.close()
    assert seats == {step: 1 if step < 3 else 2 for step in range(16)}
    assert 0 < feed.dropped <= 5


def test_what_a_switch_within_the_horizon_needs_is_loaded_before_it_is_due() -> None:
    session = FakeSession(Seat(1, 0, 1))
    plan = Plan(samples=400, global_batch_size=4, epochs=1)
    feed = feed_for(session, plan, workers=2, prefetch=8)
    for batch in feed:
        if batch.step == 10:
            session.schedule.foresee(13, Seat(2, 1, 2))
        if batch.step == 12:
            ahead = [(i.extent.step, i.seat.generation) for i in feed.sampler.issued]
            assert ahead[-2:] == [(13, 2), (14, 2)]
        if batch.step == 20:
            session.schedule.foresee(40, Seat(3, 0, 1))
        session.complete()
    feed.close()
    assert session.cursor == Cursor(100, 0, 400)
    assert feed.dropped == 14  # steps 13 to 26: the others were never asked for


def test_a_second_switch_drops_only_what_was_loaded_for_the_first() -> None:
    session = FakeSession(Seat(1, 0, 1))
    plan = Plan(samples=400, global_batch_size=4, epochs=1)
    feed = feed_for(session, plan, workers=1, prefetch=16)
    for batch in feed:
        if batch.step == 10:
            session.schedule.foresee(12, Seat(2, 1, 2))
        if batch.step == 11:
            session.schedule.foresee(30, Seat(3, 1, 2))
        session.complete()
    feed.close()
    assert feed.dropped == 15
    assert session.cursor == Cursor(100, 0, 400)


def test_a_withdrawn_switch_leaves_the_old_seat_in_force() -> None:
    session = FakeSession(ALONE)
    feed = feed_for(session, Plan(samples=24, global_batch_size=4, epochs=1))
    session.schedule.foresee(3, Seat(2, 1, 2))
    session.due.append(lambda: session.schedule.withdraw(2))
    assert sorted(used(train(feed, session))) == list(range(24))


def test_a_failure_in_the_last_step_is_repeated_though_the_sampler_had_come_to_its_end() -> None:
    for workers in (0, 2):
        session = FakeSession(Seat(1, 0, 2))
        feed = feed_for(session, Plan(samples=16, global_batch_size=4, epochs=1), workers)
        seen: dict[int, int] = {}
        for batch in feed:
            seen[batch.step] = len(batch.indices)
            if batch.step == 3 and session.schedule.era == 0:
                session.schedule.replace(ALONE)  # the other one died: its half is ours now
                continue
            session.complete()
        feed.close()
        assert seen == {0: 2, 1: 2, 2: 2, 3: 4}


def test_a_step_that_becomes_void_between_micro_batches_begins_anew() -> None:
    session = FakeSession(Seat(1, 0, 1))
    plan = Plan(samples=8, global_batch_size=8, micro_batch_size=2, epochs=1, shuffle=False)
    feed = iter(feed_for(session, plan))
    assert [next(feed).issued.micro for _ in range(2)] == [0, 1]
    session.schedule.replace(Seat(2, 1, 2))
    again = [next(feed), next(feed)]
    assert [batch.indices for batch in again] == [(4, 5), (6, 7)]
    assert [batch.issued.micro for batch in again] == [0, 1]


def test_a_session_that_refuses_a_micro_batch_gets_another_boundary() -> None:
    session = FakeSession(ALONE)
    batches = iter(feed_for(session, Plan(samples=8, global_batch_size=4, epochs=1, shuffle=False)))
    session.void = True
    assert next(batches).indices == (0, 1, 2, 3)
    assert len(session.boundaries) == 2


def test_a_newcomer_may_begin_to_load_before_its_first_step_is_due() -> None:
    session = FakeSession(Seat(4, 1, 2))
    feed = feed_for(session, Plan(samples=40, global_batch_size=4, epochs=2), workers=2)
    expected = Cursor(step=13, epoch=1, position=12)
    feed.prime(expected)
    assert feed.sampler.horizon > 13
    session.receive(expected)
    batch = next(iter(feed))
    feed.close()
    assert (batch.step, batch.epoch, feed.dropped) == (13, 1, 0)


def test_a_batch_that_is_never_stepped_is_an_error_and_not_an_endless_loop() -> None:
    session = FakeSession(ALONE)
    batches = iter(feed_for(session, Plan(samples=8, global_batch_size=4, epochs=1)))
    next(batches)
    with pytest.raises(DataError, match=r"step 0 was handed out.*call job\.step"):
        next(batches)


def test_an_error_in_the_dataset_reaches_the_script_and_the_step_can_be_tried_again() -> None:
    class Flaky(Numbers):
        broken = True

        def __getitem__(self, index: int) -> Any:
            if index == 5 and self.broken:
                raise OSError("disk")
            return super().__getitem__(index)

    session, dataset = FakeSession(ALONE), Flaky(8)
    sampler = ElasticBatchSampler(
        Plan(samples=8, global_batch_size=4, epochs=1, shuffle=False), session.schedule
    )
    feed = Feed(session, build_loader(dataset, sampler), sampler)
    with pytest.raises(OSError, match="disk"):
        train(feed, session)
    dataset.broken = False
    assert used(train(feed, session)) == [4, 5, 6, 7]


def test_a_step_never_mixes_two_seats_while_another_thread_changes_the_schedule() -> None:
    session = FakeSession(ALONE)
    plan = Plan(samples=1200, global_batch_size=6, micro_batch_size=2, epochs=1, shuffle=False)
    over = threading.Event()

    def meddle() -> None:
        chance = random.Random(1)
        for generation in itertools.count(2):
            size = chance.randint(1, 4)
            seat = Seat(generation, chance.randrange(size), size)
            session.schedule.foresee(session.cursor.step + chance.randint(0, 4), seat)
            if over.wait(0.0005):
                return
            if chance.random() < 0.5:
                session.schedule.withdraw(generation)

    thread = threading.Thread(target=meddle)
    thread.start()
    step: list[Batch] = []
    try:
        for batch in feed_for(session, plan):
            step = [*step, batch] if batch.issued.micro else [batch]
            assert len({taken.issued.ticket for taken in step}) == 1
            if batch.last_micro:
                extent, seat = batch.issued.extent, batch.issued.seat
                a, b = share(extent.start, extent.stop, seat.rank, seat.size)
                assert used(step) == list(range(a, b))
                session.complete()
    finally:
        over.set()
        thread.join()
    assert session.cursor == Cursor(step=200, epoch=0, position=1200)


# ------------------------------------------------------------------------------------- epochs


def test_epochs_are_counted_from_the_start_of_the_job() -> None:
    session = FakeSession(ALONE, Cursor(step=5, epoch=1, position=4))
    feed = feed_for(session, Plan(samples=8, global_batch_size=4, epochs=3))
    assert [batch.epoch for batch in train(feed, session)] == [1, 2, 2]
    assert session.cursor == Cursor(step=8, epoch=2, position=8)
    assert train(feed, session) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_without_epochs_each_iteration_is_the_rest_of_one_epoch(workers: int) -> None:
    session = FakeSession(ALONE, Cursor(step=1, epoch=0, position=4))
    feed = feed_for(session, Plan(samples=10, global_batch_size=4), workers)
    lengths = [len(used(train(feed, session))) for _ in range(3)]
    feed.close()
    assert lengths == [6, 10, 10]
    assert session.cursor == Cursor(step=9, epoch=2, position=10)


def test_a_boundary_comes_before_every_step_with_a_rolled_cursor_and_never_at_the_end() -> None:
    session = FakeSession(ALONE)
    train(feed_for(session, Plan(samples=5, global_batch_size=3, epochs=2)), session)
    assert session.boundaries == [
        Cursor(0, 0, 0),
        Cursor(1, 0, 3),
        Cursor(2, 1, 0),
        Cursor(3, 1, 3),
    ]


def test_a_newcomer_without_epochs_takes_part_in_the_epoch_the_others_are_in() -> None:
    session = FakeSession(ALONE)
    session.receive(Cursor(step=9, epoch=4, position=4))
    feed = feed_for(session, Plan(samples=8, global_batch_size=4))
    assert [batch.epoch for batch in train(feed, session)] == [4]


def test_a_member_that_was_a_step_behind_at_the_end_of_its_epoch_leaves_the_loop() -> None:
    session = FakeSession(ALONE)
    batches = iter(feed_for(session, Plan(samples=4, global_batch_size=4)))
    next(batches)
    session.receive(Cursor(step=1, epoch=1, position=0))  # the others completed it
    assert next(batches, None) is None


def test_an_iteration_that_was_left_goes_on_where_the_job_stands() -> None:
    session = FakeSession(ALONE)
    feed = feed_for(session, Plan(samples=12, global_batch_size=4, epochs=1, shuffle=False))
    for _batch in feed:
        session.complete()
        break
    assert used(train(feed, session)) == list(range(4, 12))


def test_no_epochs_at_all_touches_neither_session_nor_dataset() -> None:
    session = FakeSession(ALONE)
    assert train(feed_for(session, Plan(samples=8, global_batch_size=4, epochs=0)), session) == []
    assert session.boundaries == []
