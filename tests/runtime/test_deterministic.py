"""Deterministic mode's arithmetic, and what a member that is lost leaves behind in it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from midflight.errors import UsageError, WorldChanged
from midflight.runtime.data.plan import Extent, Seat
from midflight.runtime.data.sampler import Issued
from midflight.runtime.data.schedule import Ticket
from midflight.runtime.gradients.deterministic import ExactSync
from midflight.runtime.group.process_group import Group
from tests.runtime.handing import together
from tests.runtime.keys import world
from tests.runtime.worlds import connected


class LosesAMember(Group):
    """A fake of two members: it comes as far as the broadcast of the buffers."""

    def __init__(self) -> None:
        super().__init__(world(2), "m0", "gloo")

    def broadcast_all(self, tensors: list[torch.Tensor], root: int) -> None:
        raise WorldChanged("the group was cut")


def issued(micro: int, *, last: bool) -> Issued:
    ticket = Ticket(Seat(1, 0, 2), 0)
    return Issued(Extent(0, 0, 0, 8), ticket, micro, (0, 1, 2, 3), (), 0.5, last, shard=micro)


def step(model: nn.Module, sync: ExactSync, data: torch.Tensor) -> None:
    for micro, part in enumerate(data.chunk(2)):
        shard = issued(micro, last=micro == 1)
        sync.expect(shard)
        (model(part).sum() * 0.5).backward()
        sync.collect(shard)
    sync.finish()


def test_a_member_lost_in_the_buffers_broadcast_leaves_no_trace_in_them() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before: dict[str, Any] = {name: b.clone() for name, b in model.named_buffers()}
    sync = ExactSync({"model": model}, shards=2)
    sync.attach(LosesAMember())
    with pytest.raises(WorldChanged):
        step(model, sync, torch.randn(8, 3))
    sync.rewind()
    after = dict(model.named_buffers())
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_completed_step_is_not_undone() -> None:
    model = nn.BatchNorm1d(3)
    sync = ExactSync({"model": model}, shards=2)
    sync.attach(Group(world(1), "m0", "gloo"))
    for number in (1, 2):
        step(model, sync, torch.randn(8, 3))
        sync.complete()
        sync.rewind()
        assert model.num_batches_tracked == number  # shard 0's, once a step


def test_gradients_keep_all_bits_of_their_type() -> None:
    kinds = (torch.float64, torch.float32, torch.bfloat16)
    model = nn.ParameterList(nn.Parameter(torch.ones(2, dtype=kind)) for kind in kinds)
    sync = ExactSync({"model": model}, shards=2)
    sync.attach(Group(world(1), "m0", "gloo"))
    for micro in (0, 1):
        sync.expect(issued(micro, last=micro == 1))
        for parameter in model:
            (parameter / 3).sum().backward()
        sync.collect(issued(micro, last=micro == 1))
    sync.finish()
    for parameter in model:
        third = torch.ones(2, dtype=parameter.dtype) / 3
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, third + third), parameter.dtype


def thawed_gradient(group: Group) -> torch.Tensor | None:
    """Of a parameter that one step was done without; this member has the shard of its rank."""
    model = nn.Linear(1, 1)
    model.bias.requires_grad_(False)
    sync = ExactSync({"model": model}, shards=2)
    sync.attach(group)
    for _ in range(2):
        model.zero_grad()
        shard = replace(issued(0, last=True), shard=group.rank)
        sync.expect(shard)
        (model(torch.ones(1, 1)).sum() * (group.rank + 1)).backward()
        sync.collect(shard)
        sync.finish()
        sync.complete()
        model.bias.requires_grad_(True)
    return model.bias.grad


def test_a_parameter_is_averaged_from_the_step_on_in_which_it_is_thawed() -> None:
    with connected(2) as groups:
        found = together(*(lambda group=group: thawed_gradient(group) for group in groups))
    assert [float(gradient) for gradient in found] == [3.0, 3.0]


def test_one_that_is_frozen_has_no_gradient_any_more() -> None:
    model = nn.Linear(3, 3)
    sync = ExactSync({"model": model}, shards=2)
    sync.attach(Group(world(1), "m0", "gloo"))
    for trained in (True, False):
        model.zero_grad()
        model.bias.requires_grad_(trained)
        step(model, sync, torch.ones(8, 3))
    assert model.weight.grad is not None and model.bias.grad is None


def test_one_that_is_thawed_between_two_shards_is_refused() -> None:
    model = nn.Linear(3, 3)
    model.bias.requires_grad_(False)
    sync = ExactSync({"model": model}, shards=2)
    for micro in (0, 1):
        shard = issued(micro, last=micro == 1)
        sync.expect(shard)
        model(torch.ones(4, 3)).sum().backward()
        if micro:
            with pytest.raises(UsageError, match="between two steps"):
                sync.collect(shard)
        else:
            sync.collect(shard)
            model.bias.requires_grad_(True)


def test_a_hand_written_loop_is_refused() -> None:
    sync = ExactSync({"model": nn.Linear(2, 2)}, shards=2)
    with pytest.raises(UsageError, match="needs the batches"):
        sync.begin()
