"""Carries a tree of plain values and tensors from one member of a group to all others.

First what it looks like, then all tensors as one run of bytes. It goes through memory of the CPU:
this happens when members come, not at every step.
"""

import json
import math
from typing import Any

import torch
from torch import Tensor

from midflight.runtime.group.process_group import Group
from midflight.runtime.state.layout import memory_of
from midflight.runtime.state.tree import DTYPES, pack, unpack

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def carry(group: Group, root: int, tree: Any) -> Any:
    """The root's tree, on every member; what the others pass is not looked at."""
    if group.size == 1:
        return tree
    if group.rank != root:
        blob = group.broadcast_bytes(b"", root)
        shapes = json.loads(group.broadcast_bytes(b"", root))
        return unpack(blob, _split(_bytes(group, root, _size(shapes)), shapes))
    packed = pack(tree)
    shapes = [(_NAMES[tensor.dtype], list(tensor.shape)) for tensor in packed.tensors]
    group.broadcast_bytes(packed.blob, root)
    group.broadcast_bytes(json.dumps(shapes).encode(), root)
    parts = [memory_of(tensor.detach().cpu().contiguous()) for tensor in packed.tensors]
    flat = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)
    if flat.numel():
        group.broadcast(flat, root)
    return tree


def _size(shapes: list[Any]) -> int:
    return sum(DTYPES[dtype].itemsize * math.prod(shape) for dtype, shape in shapes)


def _bytes(group: Group, root: int, size: int) -> Tensor:
    flat = torch.empty(size, dtype=torch.uint8)
    if size:
        group.broadcast(flat, root)
    return flat


def _split(flat: Tensor, shapes: list[Any]) -> list[Tensor]:
    tensors, begin = [], 0
    for name, shape in shapes:
        dtype = DTYPES[name]
        end = begin + dtype.itemsize * math.prod(shape)
        tensors.append(flat[begin:end].clone().view(dtype).reshape(shape))
        begin = end
    return tensors
