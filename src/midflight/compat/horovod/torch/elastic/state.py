"""TorchState: models, optimizers, samplers and plain values, kept through changes of the world.

Its version is the number of steps its optimizers have taken, so that survivors of a failure can
compare how far they are. Small things are exchanged after every change; models and optimizers only
if some rank lacks the newest, in one transfer.
"""

import copy
import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from midflight.compat.horovod.common import elastic
from midflight.compat.horovod.common.basics import rank
from midflight.compat.horovod.common.elastic import ObjectState
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.elastic.sampler import ElasticSampler
from midflight.compat.horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from midflight.runtime.membership.standing import Change
from midflight.runtime.state.claims import NOTHING
from midflight.runtime.state.loading import load
from midflight.runtime.state.tree import DTYPES, pack, unpack


class TorchState(ObjectState):
    """`state.model`, `state.optimizer` and whatever else was passed by name."""

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = dict(kwargs)
        if model is not None:
            given["model"] = model
        if optimizer is not None:
            given["optimizer"] = optimizer
        self._handlers: dict[str, StateHandler] = {}
        plain: dict[str, Any] = {}
        for name, value in given.items():
            handler = _handler(value)
            if handler is None:
                plain[name] = value
            else:
                self._handlers[name] = handler
                object.__setattr__(self, name, value)
        self._steps = 0
        self._counts = [
            handler.value.register_step_post_hook(self._count)
            for handler in self._handlers.values()
            if isinstance(handler, OptimizerStateHandler)
        ]
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **plain)

    def _count(self, *_: Any) -> None:
        self._steps += 1

    def version(self) -> int | None:
        return self._steps if self._counts else None

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        change = elastic.take_change()
        root = change.root if change is not None else 0
        heavy = {n: h for n, h in self._handlers.items() if isinstance(h, _HEAVY)}
        samplers = {n: h for n, h in self._handlers.items() if isinstance(h, SamplerStateHandler)}
        small = {name: handler.value.state_dict() for name, handler in samplers.items()}
        live = self._live()
        lacking = change is None or _somebody_lacks(change)
        live, small, self._steps = broadcast_object((live, small, self._steps), root_rank=root)
        self._saved_state = live
        self._set_attrs()
        for name, state in small.items():
            self._handlers[name].value.load_state_dict(state)
        for handler in self._handlers.values():
            if not isinstance(handler, (*_HEAVY, SamplerStateHandler)):
                handler.sync()
        if lacking:
            behind = change is None or change.versions[PROCESS.standing.rank] < max(change.versions)
            first = change is None or max(change.versions) == NOTHING
            hand_over([h.value for h in heavy.values()], root, take=behind or first)
        self.save()

    def reset(self) -> None:
        """Samplers share their samples out among the ranks of now, whoever came or went."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        object.__setattr__(self, name, value)


def _somebody_lacks(change: Change) -> bool:
    return bool(change.behind) or max(change.versions) == NOTHING


class StateHandler:
    """How one kind of object is kept; `set_handler_registry` takes others."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError


class _Copied(StateHandler):
    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self.save()

    def save(self) -> None:
        self._saved = _copy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(_copy(self._saved))


class ModelStateHandler(_Copied):
    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_Copied):
    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_Copied):
    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


_HEAVY = (ModelStateHandler, OptimizerStateHandler)
_registry: list[tuple[type, type[StateHandler]]] = [
    (nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    global _registry
    _registry = registry


def _handler(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


def _copy(state: Any) -> Any:
    """A copy that shares nothing with the live state."""
    memo: dict[int, Any] = {}
    return _detached(state, memo)


def _detached(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        made = copy.copy(value)
        for key, item in value.items():
            made[key] = _detached(item, memo)
        return made
    if isinstance(value, list):
        return [_detached(item, memo) for item in value]
    return copy.deepcopy(value, memo)


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
