"""What is loaded and in which order, what a batch offers, and which loaders are refused."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from midflight.errors import DataError
from midflight.runtime.data.feed import Feed
from midflight.runtime.data.loader import Batch, adopted, build_loader, sample_count
from midflight.runtime.data.plan import Cursor, Plan, Seat
from midflight.runtime.data.sampler import ElasticBatchSampler, EpochOrder, epoch_seed
from midflight.runtime.data.schedule import Schedule
from tests.runtime.cluster import FakeSession, Numbers, feed_for, train, used

ALONE = Seat(generation=1, rank=0, size=1)
SOON = 4.0  # seconds; torch's own watchdog takes up to 5


# -------------------------------------------------------------------------------------- order


def test_the_order_is_fixed_by_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return EpochOrder(50, seed=seed, shuffle=True)(epoch, 0, 50)

    assert order(1, 2) == order(1, 2)
    assert len({order(seed, epoch) for seed in range(4) for epoch in range(4)}) == 16
    assert sorted(order(3, 3)) == list(range(50))
    assert EpochOrder(5, seed=1, shuffle=False)(7, 1, 4) == (1, 2, 3)


def test_the_order_is_the_same_on_every_machine() -> None:
    assert epoch_seed(7, 3) == 1113404804678773931
    assert EpochOrder(8, seed=7, shuffle=True)(3, 0, 8) == (4, 2, 6, 1, 5, 3, 0, 7)


def test_loading_leaves_the_scripts_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    session = FakeSession(ALONE)
    train(feed_for(session, Plan(samples=8, global_batch_size=4, epochs=2)), session)
    assert torch.equal(torch.get_rng_state(), before)


# -------------------------------------------------------------------------------------- batch


def a_batch(data: Any) -> Batch:
    session = FakeSession(ALONE)
    return Batch(data, next(iter(feed_for(session, Plan(samples=6, global_batch_size=4)))).issued)


def test_a_batch_of_pairs_has_x_and_y_and_can_be_unpacked() -> None:
    batch = a_batch([torch.ones(4), torch.zeros(4)])
    x, y = batch
    assert batch.x is x and batch.y is y and batch[0] is x
    assert (batch.step, batch.epoch, batch.global_size, batch.weight) == (0, 0, 4, 1.0)
    assert batch.last_micro and len(batch.indices) == 4


def test_a_batch_of_another_kind_says_how_to_reach_its_parts() -> None:
    batch = a_batch({"image": torch.ones(2)})
    assert batch["image"].tolist() == [1.0, 1.0]
    with pytest.raises(AttributeError, match=r"batch\.x is element 0.*dict.*batch\[key\]"):
        _ = batch.x
    with pytest.raises(AttributeError, match=r"batch\.y is element 1"):
        _ = a_batch((torch.ones(2),)).y


def test_a_batch_moves_with_all_that_is_in_it() -> None:
    Pair = namedtuple("Pair", "left right")
    batch = a_batch({"pair": Pair(torch.ones(1), [torch.ones(2)]), "name": "a"}).to("meta")
    assert batch["pair"].left.device.type == batch["pair"].right[0].device.type == "meta"
    assert isinstance(batch["pair"], Pair) and batch["name"] == "a"
    assert len(batch.indices) == 4


# ---------------------------------------------------------------------------- loaders, bad input


def test_a_dataset_smaller_than_the_world_is_refused_at_the_start_only() -> None:
    plan = Plan(samples=3, global_batch_size=2, epochs=2)
    with pytest.raises(DataError, match="has 3 samples, the world has 4 members"):
        next(iter(feed_for(FakeSession(Seat(1, 0, 4)), plan)))
    late = FakeSession(Seat(2, 3, 4))
    late.receive(Cursor(step=1, epoch=0, position=2))
    batch = next(iter(feed_for(late, plan)))
    assert (batch.indices, batch.weight, len(batch.x)) == ((), 0.0, 2)


def test_a_dataset_without_indices_is_refused() -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    sampler = ElasticBatchSampler(Plan(samples=3, global_batch_size=1), Schedule(ALONE))
    for bad in (Stream(), iter([1, 2, 3]), {1, 2, 3}):
        with pytest.raises(DataError, match=f"map-style dataset.*got {type(bad).__name__}"):
            build_loader(bad, sampler)
    assert sample_count([1, 2, 3]) == 3


def test_a_loader_that_does_not_follow_the_sampler_is_refused() -> None:
    sampler = ElasticBatchSampler(Plan(samples=8, global_batch_size=4), Schedule(ALONE))
    with pytest.raises(DataError, match="does not use this sampler"):
        adopted(DataLoader(Numbers(8), batch_size=2), sampler)
    with pytest.raises(DataError, match="in_order=False"):
        adopted(DataLoader(Numbers(8), batch_sampler=sampler, in_order=False), sampler)
    with pytest.raises(DataError, match="has 9 samples, its sampler was made for 8"):
        adopted(DataLoader(Numbers(9), batch_sampler=sampler), sampler)
    with pytest.raises(DataError, match="batch_size cannot be set here"):
        build_loader(Numbers(8), sampler, batch_size=3)  # type: ignore[call-arg]


def test_a_scripts_own_loader_is_followed_also_without_persistent_workers() -> None:
    session = FakeSession(ALONE)
    sampler = ElasticBatchSampler(Plan(samples=10, global_batch_size=4), session.schedule)
    loader = DataLoader(Numbers(10), batch_sampler=sampler, num_workers=1)
    feed = Feed(session, loader, sampler)
    assert [sorted(used(train(feed, session))) for _ in range(2)] == [list(range(10))] * 2
    feed.close()
    del loader
    assert not multiprocessing.active_children()


def test_a_closed_feed_leaves_no_worker_behind() -> None:
    feed = feed_for(FakeSession(ALONE), Plan(samples=8, global_batch_size=4, epochs=1), workers=2)
    batches = iter(feed)
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    feed.close()
    assert not multiprocessing.active_children()
    feed.close()
    with pytest.raises(DataError, match="the job is over"):
        next(iter(feed))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_workers_die_with_a_killed_training_process_at_once(folder: str) -> None:
    script = (
        "import multiprocessing, time\n"
        "from midflight.runtime.data.plan import Plan, Seat\n"
        "from tests.runtime.cluster import FakeSession, feed_for\n"
        "feed = feed_for(FakeSession(Seat(1, 0, 1)), Plan(samples=8, global_batch_size=4), 2)\n"
        "batch = next(iter(feed))\n"
        "print(*[p.pid for p in multiprocessing.active_children()], flush=True)\n"
        "time.sleep(60)\n"
    )
    _await_end(_workers_of_one_that_is_killed(script, folder))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_a_worker_that_begins_when_the_training_process_is_dead_loads_nothing(
    tmp_path: Path, folder: str
) -> None:
    script = (
        "import multiprocessing, os, pathlib, time\n"
        "from torch.utils.data import DataLoader\n"
        "from midflight.runtime.data.loader import WorkerStart\n"
        "from tests.runtime.cluster import Numbers\n"
        "class Late(WorkerStart):\n"
        "    def __call__(self, worker):\n"
        "        while os.getppid() == parent: time.sleep(0.01)\n"
        "        super().__call__(worker)\n"
        f"        pathlib.Path({str(tmp_path)!r}, 'went on').touch()\n"
        "parent = os.getpid()\n"
        "batches = iter(DataLoader(Numbers(8), num_workers=1, worker_init_fn=Late(None)))\n"
        "print(*[p.pid for p in multiprocessing.active_children()], flush=True)\n"
        "time.sleep(60)\n"
    )
    _await_end(_workers_of_one_that_is_killed(script, folder), within=30.0)
    assert not (tmp_path / "went on").exists()


@pytest.fixture
def folder() -> Iterator[str]:
    """For what a killed program leaves; a short path, because it may leave sockets."""
    with tempfile.TemporaryDirectory() as made:
        yield made


def _workers_of_one_that_is_killed(script: str, folder: str) -> list[int]:
    """The script says in one line who its workers are."""
    search = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": search, "TMPDIR": folder},
    ) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert workers
    return workers


def _await_end(workers: list[int], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while alive := [pid for pid in workers if _running(pid)]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.01)


def _running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
