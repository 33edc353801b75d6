"""Deterministic mode: the same bits at any size.

A step's batch is cut into a fixed number of shards. Each shard's gradient is computed by itself,
with random numbers that depend on step and shard alone, and the gradients are added in the order
of the shards, so that neither the cut nor the order of additions depends on who did the work. To
bring them together, each member fills its rows of a table of zeros and the tables are summed:
adding zero changes no bit. Costs shards times the memory and the traffic of the gradients.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

import torch
from torch import Tensor, nn

from midflight.errors import UsageError
from midflight.runtime.data.sampler import Issued
from midflight.runtime.gradients.buffers import Buffers, Values
from midflight.runtime.group import reduction
from midflight.runtime.group.process_group import Group

NEEDS_BATCHES = "deterministic mode needs the batches of job.batches or job.follow"
THAWED_HALFWAY = (
    "a parameter was thawed after the first shard of a step, whose gradient of it is missing: in "
    "deterministic mode freeze and thaw parameters between two steps"
)


class ExactSync:
    """Takes the place of GradientSync."""

    def __init__(self, modules: Mapping[str, nn.Module], shards: int) -> None:
        if shards < 1:
            raise UsageError(f"deterministic wants the number of shards, 1 or more, got {shards}")
        self._params = [p for m in modules.values() for p in m.parameters()]
        self._trained: list[bool] = []  # which of them this step is about
        self._kinds: dict[torch.dtype, list[nn.Parameter]] = {}  # by the type that they add up in
        self._buffers = Buffers(modules)
        self._shards = shards
        self._tables: dict[torch.dtype, Tensor] = {}  # of the step under way
        self._group: Group | None = None
        self._kept: Values | None = None  # buffers as shard 0 left them
        self.prescaled = False

    def attach(self, group: Group) -> None:
        self._group = group
        self._buffers.forget()

    def detach(self) -> None:
        self._group = None

    def rehearse(self, backend: str) -> None:
        """Gradients are added up in memory, so a first pass is like any other."""

    def end_rehearsal(self) -> None:
        """There was none."""

    def begin(self) -> None:
        """A step of a hand-written loop begins, whose gradients would be nobody's business."""
        if any(self._requires_grad()):
            raise UsageError(NEEDS_BATCHES)

    def check_averaged(self, params: Iterable[Tensor]) -> None:
        """There is no hand-written loop in this mode."""

    def complete(self) -> None:
        """The step happened."""
        self._buffers.complete()

    def rewind(self) -> None:
        """The step under way did not happen: nor did what its forward passes did to buffers."""
        self._buffers.rewind()

    def close(self) -> None:
        self._tables = {}

    def expect(self, issued: Issued) -> None:
        """The next forward and backward pass are for this shard."""
        if issued.micro == 0:
            self._buffers.begin()
            self._kept = None
        else:
            self._buffers.restart()
        seed = f"{issued.extent.step} {issued.shard}".encode()
        torch.manual_seed(int.from_bytes(hashlib.sha256(seed).digest()[:8], "big") >> 1)

    def scaled(self, weight: float) -> float:
        """A shard's weight is the same in every world."""
        return weight

    def collect(self, issued: Issued) -> None:
        """After backward: write the shard's gradient down, and forget it."""
        if issued.shard == 0 and issued.weight:
            self._kept = self._buffers.values()
        trained = self._requires_grad()
        if issued.micro == 0:
            self._make_tables(trained)
        elif any(now and not before for now, before in zip(trained, self._trained, strict=True)):
            raise UsageError(THAWED_HALFWAY)
        for kind, params in self._kinds.items():
            row = self._tables[kind][issued.shard]
            for param, part in zip(params, _split(row, params), strict=True):
                if param.grad is not None and issued.weight:
                    part.copy_(param.grad)
                param.grad = None

    def _make_tables(self, trained: list[bool]) -> None:
        """For those parameters that are trained now: a script may freeze and thaw them."""
        if trained != self._trained:
            self._trained, self._kinds = trained, {}
            for param in compress(self._params, trained):
                exact = torch.promote_types(param.dtype, torch.float32)
                self._kinds.setdefault(exact, []).append(param)
        self._tables = {
            kind: torch.zeros(self._shards, sum(p.numel() for p in own), dtype=kind)
            for kind, own in self._kinds.items()
        }

    def _requires_grad(self) -> list[bool]:
        return [param.requires_grad for param in self._params]

    def finish(self) -> None:
        """All shards are done here: bring everybody's together, and add them in order."""
        tables, self._tables = self._tables, {}
        if not tables and any(self._requires_grad()):
            raise UsageError(NEEDS_BATCHES)
        for kind, own in tables.items():
            params = self._kinds[kind]
            table = reduction.all_reduce(self._group, own, "sum")
            total = table[0] + 0.0  # so that a negative zero is gone at any size
            for row in table[1:]:
                total += row
            for param, part in zip(params, _split(total, params), strict=True):
                param.grad = part.to(device=param.device, dtype=param.dtype, copy=True)
        self._buffers.share(self._group, self._kept)  # shard 0 is rank 0's


def _split(flat: Tensor, params: Sequence[nn.Parameter]) -> list[Tensor]:
    """The parts of a flat tensor that belong to the parameters, in their shapes."""
    parts = flat.split([param.numel() for param in params])
    return [part.view(param.shape) for part, param in zip(parts, params, strict=True)]
