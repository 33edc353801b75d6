"""Models and optimizers from the rank that is furthest to those that lack its state.

One broadcast says what there is (a tree with numbered tensors), one per data type carries it.
Whoever has the newest state already takes part, as every rank does in a broadcast, and keeps its
own.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from midflight.compat.horovod.common.basics import rank
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.functions import broadcast_object
from midflight.runtime.state.loading import load
from midflight.runtime.state.tree import DTYPES, pack, unpack


def hand_over(held: Sequence[Any], root: int, *, take: bool) -> None:
    """`take`: this rank lacks the state. Every rank calls this."""
    if not held or PROCESS.standing.group.size == 1:
        return
    is_root = rank() == root
    tensors: list[Tensor] = []
    blob = b""
    if is_root:
        packed = pack([item.state_dict() for item in held])
        blob, tensors = packed.blob, [tensor.detach() for tensor in packed.tensors]
    described = [[str(t.dtype), list(t.shape), t.device.type] for t in tensors]
    text = broadcast_object((blob.decode(), json.dumps(described)), root, "state.layout")
    layout = json.loads(text[1])
    if not is_root:
        tensors = [torch.empty(shape, dtype=DTYPES[kind], device=_here(place))
                   for kind, shape, place in layout]  # fmt: skip
    _exchange(tensors, root)
    if take and not is_root:
        for item, state in zip(held, unpack(text[0].encode(), tensors), strict=True):
            load(item, state)


def _here(kind: str) -> torch.device:
    if kind == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _exchange(tensors: list[Tensor], root: int) -> None:
    kinds: dict[tuple[Any, ...], list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            kinds.setdefault((str(tensor.dtype), tensor.device.type), []).append(tensor)
    is_root = rank() == root
    for (dtype, device), members in kinds.items():
        flat = torch.cat([t.reshape(-1) for t in members]) if is_root else None
        if flat is None:
            total = sum(tensor.numel() for tensor in members)
            flat = torch.empty(total, dtype=members[0].dtype, device=members[0].device)
        ops.broadcast_(flat, root, f"state.{dtype}.{device}")
        if not is_root:
            parts = flat.split([tensor.numel() for tensor in members])
            for tensor, part in zip(members, parts, strict=True):
                tensor.copy_(part.view(tensor.shape))
