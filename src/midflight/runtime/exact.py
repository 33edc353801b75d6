"""Deterministic mode: the same bits at any size.

A step's batch is cut into a fixed number of shards. Each shard's gradient is computed by itself,
with random numbers that depend on step and shard alone, and the gradients are added in the order
of the shards, so that neither the cut nor the order of additions depends on who did the work. To
bring them together, each member fills its rows of a table of zeros and the tables are summed:
adding zero changes no bit. Costs shards times the memory and the traffic of the gradients.
"""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from midflight.errors import UsageError
from midflight.runtime import reduction
from midflight.runtime.group import Group
from midflight.runtime.sampler import Issued


class ExactSync:
    """Takes the place of GradientSync."""

    def __init__(self, modules: Mapping[str, nn.Module], shards: int) -> None:
        if shards < 1:
            raise UsageError(f"deterministic wants the number of shards, 1 or more, got {shards}")
        self._params = [p for m in modules.values() for p in m.parameters() if p.requires_grad]
        self._buffers = [b for m in modules.values() for b in m.buffers()]
        self._shards = shards
        self._size = sum(p.numel() for p in self._params)
        self._table: Tensor | None = None
        self._group: Group | None = None
        self._before: list[Tensor] = []  # buffers as they were at the step's start
        self._kept: list[Tensor] = []  # buffers as shard 0 left them
        self.prescaled = False

    def attach(self, group: Group) -> None:
        self._group = group

    def detach(self) -> None:
        self._group = None

    def rewind(self) -> None:
        """The step under way did not happen: nor did what its forward passes did to buffers."""
        self._put_back(self._before)
        self._before = []

    def close(self) -> None:
        self._table = None

    def expect(self, issued: Issued) -> None:
        """The next forward and backward pass are for this shard."""
        if issued.micro == 0:
            self._table = torch.zeros(self._shards, self._size)
            self._before = [buffer.clone() for buffer in self._buffers]
            self._kept = []
        else:
            self._put_back(self._before)
        seed = f"{issued.extent.step} {issued.shard}".encode()
        torch.manual_seed(int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") >> 1)

    def scaled(self, weight: float) -> float:
        """A shard's weight is the same in every world."""
        return weight

    def collect(self, issued: Issued) -> None:
        """After backward: write the shard's gradient down, and forget it."""
        assert self._table is not None
        if issued.shard == 0 and issued.weight:
            self._kept = [buffer.clone() for buffer in self._buffers]
        offset = 0
        for param in self._params:
            if param.grad is not None and issued.weight:
                row = self._table[issued.shard, offset : offset + param.numel()]
                row.copy_(param.grad.reshape(-1))
            param.grad = None
            offset += param.numel()

    def finish(self) -> None:
        """All shards are done here: bring everybody's together, and add them in order."""
        table = self._table
        if table is None:
            raise UsageError("deterministic mode needs the batches of job.batches or job.follow")
        reduction.all_reduce(self._group, table, "sum")
        total = table[0] + 0.0  # so that a negative zero is gone at any size
        for row in table[1:]:
            total += row
        offset = 0
        for param in self._params:
            part = total[offset : offset + param.numel()].view_as(param)
            param.grad = part.to(device=param.device, dtype=param.dtype, copy=True)
            offset += param.numel()
        self._share_buffers()

    def _share_buffers(self) -> None:
        """Everybody takes over the buffers as shard 0, which is rank 0's, left them."""
        self._before = []
        if self._kept:
            self._put_back(self._kept)
        for buffer in self._buffers if self._group is not None and self._group.size > 1 else ():
            assert self._group is not None
            self._group.broadcast(buffer, 0)

    def _put_back(self, values: list[Tensor]) -> None:
        for buffer, value in zip(self._buffers, values, strict=False):
            buffer.copy_(value)
