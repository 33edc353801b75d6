"""Where a member with a state of its own receives another; told without a GPU."""

from pathlib import Path

import pytest
import torch
from torch import nn

from midflight.runtime.state import room
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Snapshot
from tests.runtime.handing import same_bits

CUDA = torch.device("cuda", 0)


class Far:
    """A tensor on a device that this machine need not have."""

    is_cpu = False
    device = CUDA

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_a_device_that_is_more_than_half_full_has_no_room() -> None:
    state = [Far(40), Far(20)]
    assert room.has_room(state, lambda device: 70)  # type: ignore[arg-type]
    assert not room.has_room(state, lambda device: 60)  # type: ignore[arg-type]


def test_host_memory_is_not_asked_for_room() -> None:
    assert room.has_room([torch.zeros(10)], lambda device: 0)


@pytest.mark.parametrize(
    ("on_device", "on_host", "times", "fits"),
    [
        (100, 0, 8, True),  # each on its own device
        (40, 160, 2, True),  # the device is full, so they lie on the host
        (40, 159, 2, False),
    ],
)
def test_copies_that_no_device_has_room_for_take_half_of_the_host_s_memory_at_most(
    on_device: int, on_host: int, times: int, fits: bool
) -> None:
    free = {CUDA: on_device, torch.device("cpu"): on_host}
    assert room.can_copy([Far(40)], times, free.__getitem__) == fits  # type: ignore[list-item]


def test_a_tensor_on_the_host_is_copied_there() -> None:
    state = [torch.zeros(10)]
    assert room.can_copy(state, 1, lambda _: 80)
    assert not room.can_copy(state, 2, lambda _: 80)


CPU = torch.device("cpu")
STATISTICS = "anon 5\ninactive_file 100\ntotal_inactive_file 100\n"


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ],
)
def test_a_container_s_limit_counts(tmp_path: Path, limit: str, used: str) -> None:
    groups = tmp_path / "sys/fs/cgroup"
    (groups / limit).parent.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4 kB\n")
    assert room.available_bytes(CPU, tmp_path) == 4096, "where there is none"
    (groups / used).write_text("900\n")
    (groups / used).with_name("memory.stat").write_text(STATISTICS)
    for most, left in (("1000", 200), ("max", 4096), ("700", 0), (str(1 << 62), 4096)):
        (groups / limit).write_text(f"{most}\n")
        assert room.available_bytes(CPU, tmp_path) == left


def stepped(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, Holdings]:
    torch.manual_seed(seed)
    model = nn.Linear(30, 20)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    return model, optimizer, Holdings({"model": model, "optimizer": optimizer})


def test_what_was_received_on_the_host_takes_the_place_of_the_member_s_own_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "on_device", lambda tensor: True)  # as if all of it were far away
    giver_model, giver_optimizer, giver = stepped(1)
    model, optimizer, taker = stepped(2)
    before = [t.data_ptr() for t in (*model.parameters(), *moments(optimizer))]
    own, given = taker.capture({}), giver.capture({})
    place = room.host_room(own)
    assert {t.data_ptr() for t in place.tensors}.isdisjoint(t.data_ptr() for t in own.tensors)
    for slot, tensor in zip(place.tensors, given.tensors, strict=True):
        slot.copy_(tensor.detach())
    assert not torch.equal(model.weight, giver_model.weight)  # its own until all is there
    taker.restore(room.move_in(own, Snapshot(given.blob, place.tensors, given.layout)))
    assert torch.equal(model.weight, giver_model.weight)
    assert same_bits(optimizer.state_dict(), giver_optimizer.state_dict())
    assert [t.data_ptr() for t in (*model.parameters(), *moments(optimizer))] == before


def moments(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [state["exp_avg"] for state in optimizer.state.values()]


def test_a_state_that_is_laid_out_otherwise_is_taken_as_it_is() -> None:
    own = Holdings({"model": nn.Linear(3, 2)}).capture({})
    other = Holdings({"model": nn.Linear(3, 4)}).capture({})
    assert room.move_in(own, other) is other
