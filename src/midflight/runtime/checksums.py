"""A checksum of tensors, computed where they lie, and cheap enough for a change of the world.

The bits are summed as 64-bit integers, in blocks whose places are weighted: one pass over the
memory and no copy of it, the same result on every device and with any number of threads. Small
tensors are gathered first, because each operation costs as much as reading 100 KB. It tells states
apart that have come to differ; it is no defence against somebody who wants two to look the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

BLOCK = 64  # 64-bit words
LARGE = 256 << 10  # bytes
_WORD = 8
_MASK = (1 << 63) - 1
_FACTOR = 0x9E3779B97F4A7C15  # odd, with its bits well spread


@torch.no_grad()
def checksum(tensors: Sequence[Tensor]) -> int:
    """Equal for equal bits in an equal order; below 2**63."""
    sums = [_sum(memory) for memory in _memories(tensors)]
    by_device: dict[torch.device, list[int]] = {}
    for number, item in enumerate(sums):
        by_device.setdefault(item.device, []).append(number)
    values = [0] * len(sums)
    for numbers in by_device.values():  # one wait for each device
        fetched = torch.stack([sums[number] for number in numbers]).tolist()
        for number, value in zip(numbers, fetched, strict=True):
            values[number] = value
    total = len(values)
    for value in values:
        total = ((total ^ value) * _FACTOR + (total >> 29)) & _MASK
    return total


def _memories(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Their bytes: those of large ones where they lie, those of small ones gathered."""
    small: dict[tuple[Any, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        if tensor.nbytes >= LARGE:
            yield tensor.detach().contiguous().view(-1).view(torch.uint8)
        elif tensor.numel():
            small.setdefault((tensor.device, tensor.dtype), []).append(tensor.detach())
    for some in small.values():
        yield _flatten_dense_tensors(some).view(torch.uint8)


def _sum(memory: Tensor) -> Tensor:
    """One number for a stretch of bytes, still on its device."""
    whole = memory.numel() // (BLOCK * _WORD) * (BLOCK * _WORD)
    rest = memory[whole:].to(torch.int64)
    total = (rest * _weights(rest)).sum()
    if whole:
        head = memory[:whole]
        if head.storage_offset() % _WORD:
            head = head.clone()
        blocks = head.view(torch.int64).view(-1, BLOCK).sum(1)
        total = total + (blocks * _weights(blocks)).sum() * _WORD + blocks.sum()
    return total


def _weights(values: Tensor) -> Tensor:
    return torch.arange(3, 2 * values.numel() + 3, 2, device=values.device)
