"""A checksum of tensors, computed where they lie, and cheap enough for a change of the world.

The bits are summed as 64-bit integers in blocks, and the blocks' sums are weighted by their places:
one pass over the memory without a copy of it, and the same result on every device and with any
number of threads. Small tensors are gathered first, because each operation costs as much as reading
100 KB. It tells states apart that have come to differ; it is no defence against somebody who wants
two to look the same. Progress is told, as that of a transfer is: a large state takes seconds, and
others may wait for it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from midflight.runtime.state.channel import note_moved
from midflight.runtime.torch_private import flatten

BLOCK = 512  # words
LARGE = 128 << 10  # bytes
PIECE = 1 << 30  # bytes of one tensor that are summed at once
_WORD = 8  # bytes
_MASK = (1 << 63) - 1
_FACTOR = 0x9E3779B97F4A7C15  # odd, with its bits well spread


@torch.no_grad()
def checksum(tensors: Sequence[Tensor]) -> int:
    """Equal for equal bits in an equal order; below 2**63."""
    sums: dict[torch.device, list[Tensor]] = {}
    for memory in _memories(tensors):
        sums.setdefault(memory.device, []).extend(_sums(memory))
    total = 0
    for some in sums.values():  # one wait for each device
        words = torch.cat(some)
        weights = torch.arange(3, 2 * words.numel() + 3, 2, device=words.device)
        weighted = int((words * weights).sum().item())
        total = ((total ^ weighted) * _FACTOR + (total >> 29)) & _MASK
    return total


def _memories(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """The tensors, flat: large ones where they lie, small ones gathered."""
    small: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        if tensor.nbytes >= LARGE:
            yield tensor.detach().contiguous().view(-1)
        elif tensor.numel():
            small.setdefault((tensor.device, tensor.dtype), []).append(tensor.detach())
    for some in small.values():
        yield flatten(some)


def _sums(memory: Tensor) -> Iterator[Tensor]:
    """The sums of the blocks, and the words and bytes that fill none."""
    words, odd = _words(memory)
    whole = words.numel() // BLOCK * BLOCK
    for piece in words[:whole].view(-1, BLOCK).split(PIECE // (BLOCK * _WORD)):
        yield piece.sum(1)
        note_moved(piece.nbytes)
    if whole < words.numel():
        yield words[whole:]
    yield from odd


def _words(memory: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A flat tensor as words, and the bytes that are none."""
    if memory.storage_offset() * memory.element_size() % _WORD:
        memory = memory.clone()
    if memory.nbytes % _WORD == 0:
        return memory.view(torch.int64), []
    content = memory.view(torch.uint8)
    size = content.numel() // _WORD * _WORD
    return content[:size].view(torch.int64), [content[size:].to(torch.int64)]
