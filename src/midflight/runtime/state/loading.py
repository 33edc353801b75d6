"""Puts received state into modules, optimizers and the like, bit for bit and without big copies.

Everything goes through the object's own `load_state_dict`, so that hooks and subclasses have their
say. What this adds: tensors that already lie where they belong are not copied, expanded buffers can
be written, tensors that a module does not list are put back, and an optimizer's state keeps its
dtypes, which torch would cast to those of the parameters.
"""

import itertools
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from midflight.runtime import torch_private


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers; tied ones appear under each of their names."""
    tensors: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    tensors.update(module.named_buffers(remove_duplicate=False))
    return tensors


@torch.no_grad()
def listed_by(module: nn.Module, own: dict[str, Tensor]) -> dict[str, Any]:
    """The module's state_dict, with its own tensors instead of what shares their memory."""
    if type(module).state_dict is nn.Module.state_dict:
        state = module.state_dict(keep_vars=True)
    else:
        state = module.state_dict()
    return {key: own[key] if same_memory(own.get(key), v) else v for key, v in state.items()}


def load(held: Any, state: Any) -> None:
    """Have `held` take `state` over, as its own load_state_dict does."""
    if isinstance(held, nn.Module):
        _load_module(held, state)
    elif isinstance(held, torch.optim.Optimizer):
        _load_optimizer(held, state)
    else:
        held.load_state_dict(state)


def _load_module(module: nn.Module, state: dict[str, Any]) -> None:
    own = tensors_of(module)
    listed = OrderedDict(state)
    current = module.state_dict()
    in_place = all(key in own and same_memory(own[key], item) for key, item in listed.items())
    if in_place and listed.keys() == current.keys() and torch_private.loads_plainly(module):
        return  # all that load_state_dict would do is to copy each tensor onto itself
    torch_private.copy_metadata(listed, current)
    for key, tensor in own.items():
        if key in listed and _is_expanded(tensor):
            _write(tensor, listed[key])
            listed[key] = tensor
    module.load_state_dict(listed)


def same_memory(own: Tensor | None, other: object) -> bool:
    """Whether `other` is the module's own memory, not something made from it."""
    if own is other:
        return True
    if own is None or not isinstance(other, Tensor) or is_lazy(own):
        return False
    return (
        own.data_ptr() == other.data_ptr()
        and own.shape == other.shape
        and own.stride() == other.stride()
        and own.dtype == other.dtype
    )


def load_unlisted(module: nn.Module, state: dict[str, Tensor]) -> None:
    """The tensors that the module's load_state_dict does not know."""
    own = tensors_of(module)
    for key, tensor in state.items():
        if key in own and own[key].shape == tensor.shape:
            _write(own[key], tensor)
        else:  # a buffer that was made or resized while training
            path, _, name = key.rpartition(".")
            module.get_submodule(path).register_buffer(name, tensor, persistent=False)


def _load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """load_state_dict casts to the parameter's dtype; what had another on the giver keeps it."""
    optimizer.load_state_dict(state)
    if not state.keys() >= {"state", "param_groups"}:
        return  # a subclass with a format of its own knows best
    saved = itertools.chain.from_iterable(group["params"] for group in state["param_groups"])
    params = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
    for number, param in zip(saved, params, strict=True):
        if number in state["state"]:
            optimizer.state[param] = _uncast(optimizer.state[param], state["state"][number])


def _uncast(loaded: Any, given: Any) -> Any:
    if isinstance(given, Tensor) and isinstance(loaded, Tensor):
        return loaded if loaded.dtype == given.dtype else given.to(loaded.device)
    if isinstance(given, dict) and isinstance(loaded, dict):
        return {key: _uncast(item, given.get(key, item)) for key, item in loaded.items()}
    if type(given) is list and type(loaded) is list and len(given) == len(loaded):
        return [_uncast(*pair) for pair in zip(loaded, given, strict=True)]
    return given if isinstance(given, (str, bytes)) else loaded


def _is_expanded(tensor: Tensor) -> bool:
    return not is_lazy(tensor) and 0 in tensor.stride() and tensor.numel() > 1


@torch.no_grad()
def _write(target: Tensor, source: Tensor) -> None:
    """Copy, also into a tensor of which several elements are one place in memory."""
    for dim, step in enumerate(target.stride()):
        if step == 0 and target.shape[dim] > 1:
            target, source = target.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    target.copy_(source)
