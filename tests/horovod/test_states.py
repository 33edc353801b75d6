"""Elastic states and samplers by themselves: the faults that Horovod has, which are not here.

In a world of one, as in a plain `python train.py`; what happens between processes is in
test_elastic.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import midflight.compat.horovod.torch as hvd
from midflight.compat.horovod.common import elastic as common
from midflight.compat.horovod.common.elastic import HostUpdateResult, ObjectState
from midflight.compat.horovod.common.exceptions import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidRequest,
)
from midflight.compat.horovod.torch.elastic import state as states
from midflight.compat.horovod.torch.elastic.sampler import ElasticSampler
from midflight.compat.horovod.torch.elastic.state import TorchState


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def made(**more: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TorchState(model, optimizer, **more)


def step(state: Any) -> None:
    state.optimizer.zero_grad()
    state.model(torch.ones(1, 2)).sum().backward()
    state.optimizer.step()


def test_before_init_the_ranks_are_refused_with_horovods_words() -> None:
    hvd.shutdown()
    with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)."):
        hvd.rank()


def test_an_exchange_keeps_what_is_live_and_not_what_was_committed_last() -> None:
    state = made(batch=0)
    state.commit()
    state.batch = 7
    state.sync()
    assert state.batch == 7


def test_an_exchange_is_what_a_later_restore_comes_back_to() -> None:
    state = made(batch=0)
    step(state)
    weights = state.model.weight.detach().clone()
    state.batch = 3
    state.sync()
    step(state)
    state.batch = 4
    state.restore()
    assert state.batch == 3
    assert torch.equal(state.model.weight, weights)


def test_restore_brings_back_mutable_values_and_the_optimizer() -> None:
    state = made(losses=[1.0], nested={"a": [1]})
    step(state)
    state.save()
    momentum = state.optimizer.state[state.model.weight]["momentum_buffer"].clone()
    step(state)
    state.losses.append(2.0)
    state.nested["a"].append(2)
    state.restore()
    assert state.losses == [1.0] and state.nested == {"a": [1]}
    assert torch.equal(state.optimizer.state[state.model.weight]["momentum_buffer"], momentum)
    state.losses.append(3.0)
    state.restore()
    assert state.losses == [1.0]


def test_a_value_set_to_a_new_model_is_what_the_state_keeps() -> None:
    state = made()
    state.model = nn.Linear(2, 2)
    weight = state.model.weight.detach().clone()
    with torch.no_grad():
        state.model.weight.zero_()
    state.restore()
    assert torch.equal(state.model.weight, weight)


def test_its_version_counts_the_steps_of_its_optimizers() -> None:
    state = made()
    assert state.version() == 0
    step(state)
    assert state.version() == 1
    assert ObjectState(lambda value, **_: value, lambda: 0, a=1).version() is None


@pytest.mark.parametrize("remaining", [1, 2, 3, 5])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_a_sampler_fills_up_however_few_samples_are_left(remaining: int, replicas: int) -> None:
    sampler = ElasticSampler(range(20), shuffle=False)
    sampler.processed_num = 20 - remaining
    sampler.reset()
    seen = []
    for rank in range(replicas):
        sampler.num_replicas, sampler.rank = replicas, rank
        sampler.num_samples = -(-remaining // replicas)
        sampler.total_size = sampler.num_samples * replicas
        indices = list(sampler)
        assert len(indices) == len(sampler) == sampler.num_samples
        seen += indices
    assert set(seen) == set(range(20 - remaining, 20))


def test_a_sampler_shuffles_alike_everywhere_and_anew_each_epoch() -> None:
    one, other = ElasticSampler(range(50)), ElasticSampler(range(50))
    assert list(one) == list(other)
    before = list(one)
    one.record_batch(0, 10)
    assert one.state_dict() == {"epoch": 0, "processed_num": 10}
    other.load_state_dict(one.state_dict())
    assert list(other) == before[10:]
    one.set_epoch(1)
    assert sorted(one) == list(range(50)) and list(one) != before


def test_hosts_that_a_program_finds_out_itself_raise_at_the_next_check() -> None:
    state = made()
    state.on_hosts_updated(1, HostUpdateResult.removed)
    with pytest.raises(HostsUpdatedInterrupt) as removed:
        state.check_host_updates()
    assert removed.value.skip_sync
    state.on_hosts_updated(2, HostUpdateResult.removed)
    state.on_hosts_updated(3, HostUpdateResult.added)
    with pytest.raises(HostsUpdatedInterrupt) as mixed:
        state.commit()
    assert not mixed.value.skip_sync
    state.check_host_updates()


class Told(common.State):
    """Writes down what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def save(self) -> None:
        self.calls.append("save")

    def restore(self) -> None:
        self.calls.append("restore")

    def sync(self) -> None:
        self.calls.append("sync")

    def reset(self) -> None:
        self.calls.append("reset")


def test_the_loop_restores_resets_calls_back_and_exchanges_in_horovods_order() -> None:
    state = Told()
    state.register_reset_callbacks([lambda: state.calls.append("callback")])
    turns: list[Exception | None] = [
        HorovodInternalError("lost"),
        HostsUpdatedInterrupt(skip_sync=False),
        None,
    ]

    def train(state: Told) -> str:
        state.calls.append("train")
        turn = turns.pop(0)
        if turn is not None:
            raise turn
        return "done"

    assert common.run_fn(train, lambda _: state.calls.append("enter"))(state) == "done"
    assert state.calls == [
        *("sync", "train", "restore", "enter", "reset", "callback"),
        *("sync", "train", "enter", "reset", "callback", "sync", "train"),
    ]


@pytest.mark.parametrize("error", [ValueError("mine"), InvalidRequest("shapes differ")])
def test_errors_of_the_script_leave_the_loop(error: Exception) -> None:
    def train(state: Told) -> None:
        raise error

    with pytest.raises(type(error)):
        common.run_fn(train, lambda _: None)(Told())


def test_other_kinds_of_objects_can_be_given_a_handler() -> None:
    class Counter:
        value = 1

    class CounterHandler(states.StateHandler):
        def save(self) -> None:
            self.saved = self.value.value

        def restore(self) -> None:
            self.value.value = self.saved

        def sync(self) -> None:
            self.save()

    registry = states.get_handler_registry()
    try:
        states.set_handler_registry([*registry, (Counter, CounterHandler)])
        state: Any = TorchState(counter=Counter())
        state.counter.value = 5
        state.sync()
        state.counter.value = 6
        state.restore()
        assert state.counter.value == 5
    finally:
        states.set_handler_registry(registry)


def test_every_public_name_is_there_with_horovods_parameters() -> None:
    assert {
        name: list(inspect.signature(getattr(hvd, name)).parameters)
        for name in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "join",
                     "init", "broadcast_object", "DistributedOptimizer")
    } == {
        "allreduce": ["tensor", "average", "name", "compression", "op", "prescale_factor",
                      "postscale_factor", "process_set"],
        "allgather": ["tensor", "name", "process_set"],
        "broadcast": ["tensor", "root_rank", "name", "process_set"],
        "alltoall": ["tensor", "splits", "name", "process_set"],
        "reducescatter": ["tensor", "name", "compression", "op", "process_set",
                          "prescale_factor", "postscale_factor"],
        "join": ["device"],
        "init": ["comm", "process_sets"],
        "broadcast_object": ["obj", "root_rank", "name", "process_set"],
        "DistributedOptimizer": ["optimizer", "named_parameters", "compression",
                                 "backward_passes_per_step", "op", "gradient_predivide_factor",
                                 "num_groups", "groups", "sparse_as_dense", "process_set"],
    }  # fmt: skip
    assert hvd.gloo_built() and hvd.gloo_enabled() and not hvd.mpi_enabled()
    with pytest.raises(AttributeError, match=r"'max_size'.*docs/"):
        hvd.max_size  # noqa: B018


NAMES = """elastic Compression allgather_object broadcast_object broadcast_optimizer_state
broadcast_parameters allreduce allreduce_async allreduce_ allreduce_async_ grouped_allreduce
grouped_allreduce_async grouped_allreduce_ grouped_allreduce_async_ sparse_allreduce_async allgather
allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_async broadcast_
broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter
grouped_reducescatter_async join barrier poll synchronize init shutdown is_initialized
start_timeline stop_timeline size local_size cross_size rank local_rank cross_rank
mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built
cuda_built rocm_built ProcessSet global_process_set add_process_set remove_process_set Average Sum
Adasum Min Max Product HorovodInternalError DistributedOptimizer SyncBatchNorm"""


def test_nothing_of_horovod_torch_is_missing() -> None:
    assert [name for name in NAMES.split() if not hasattr(hvd, name)] == []
