"""Whole states and plain values from one rank to the others.

An optimizer's state travels as it is: no optimizer takes a step to make room for it, which with
weight decay would change the parameters behind the model's back.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from midflight.compat.horovod.common.basics import rank
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine.objects import from_bytes, to_bytes
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.runtime.state.loading import load


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """A state_dict, or a list of (name, tensor) pairs: everywhere as on the root."""
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, list):
        pairs = [item if isinstance(item, tuple) else (None, item) for item in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    handles = []
    for number, (name, tensor) in enumerate(pairs):
        if not isinstance(tensor, Tensor):
            continue
        named = f"parameter.{name if name is not None else number}"
        target = tensor.data if tensor.is_contiguous() else tensor.detach().contiguous()
        handle = ops.broadcast_async_(target, root_rank, named, process_set)
        handles.append((handle, tensor, target))
    for handle, tensor, target in handles:
        ops.synchronize(handle)
        if not tensor.is_contiguous():
            tensor.data.copy_(target)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    model: nn.Module | None = None,
) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    own = optimizer.state_dict() if rank() == root_rank else None
    received = broadcast_object(own, root_rank, "optimizer_state", process_set)
    if rank() != root_rank and received is not None:
        load(optimizer, received)
    if not optimizer.state and not isinstance(optimizer, torch.optim.SparseAdam):
        _make_gradients(optimizer)


def _make_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Scripts find gradients after this, as Horovod makes them in order to make the state."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's value, everywhere: numbers, strings, containers, tensors and arrays."""
    if not PROCESS.standing.arrived or process_set.size() == 1:
        return obj
    name = name if name is not None else PROCESS.name("object", None, process_set.process_set_id)
    is_root = rank() == root_rank
    data = to_bytes(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    length = torch.tensor([data.numel()], dtype=torch.int64)
    ops.broadcast_(length, root_rank, f"{name}.size", process_set)
    if not is_root:
        data = torch.empty(int(length.item()), dtype=torch.uint8)
    ops.broadcast_(data, root_rank, f"{name}.data", process_set)
    return obj if is_root else from_bytes(data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Everybody's values, by rank."""
    if not PROCESS.standing.arrived or process_set.size() == 1:
        return [obj]
    name = name if name is not None else PROCESS.name("objects", None, process_set.process_set_id)
    data = to_bytes(obj)
    lengths = ops.allgather_async(torch.tensor([data.numel()]), f"{name}.sizes", process_set)
    parts = ops.allgather_async(data, f"{name}.data", process_set)
    sizes = [int(size) for size in ops.synchronize(lengths)]
    return [from_bytes(part) for part in ops.synchronize(parts).split(sizes)]


__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]
