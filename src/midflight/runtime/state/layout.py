"""What the tensors of a snapshot look like: enough for a receiver to make room beforehand.

A slot says how a tensor's bytes are ordered on their way and where they belong. Dense tensors,
permuted ones (channels_last) included, travel as their memory lies; all others (slices, expanded
ones) as contiguous copies. A layout knows nothing of values, so it stays the same from step to step
and can be sent long before the state itself; its fingerprint tells both sides whether it still
holds.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from midflight.errors import StateError
from midflight.runtime.state.tree import DTYPES

Home = tuple[str, str]
"""The name of a module that a session carries, and the name of one of its tensors."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Slot(NamedTuple):
    """One tensor on its way from member to member."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None  # None: contiguous
    device: str  # the type only: each member has its own numbering
    home: Home | None  # None: not a tensor of a module, the receiver makes a new one

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize

    def fits(self, tensor: Tensor) -> bool:
        """Whether the slot's bytes can be written straight into the memory of `tensor`."""
        return self[:4] == slot_of(tensor)[:4] and is_dense(tensor)

    def empty(self, device: torch.device) -> Tensor:
        """New memory for it, each page touched: the first touch costs more than the transfer."""
        dtype = DTYPES[self.dtype]
        if self.stride is None:
            return torch.zeros(self.shape, dtype=dtype, device=device)
        return torch.empty_strided(self.shape, self.stride, dtype=dtype, device=device).zero_()


@dataclass(frozen=True)
class Layout:
    """The slots of a snapshot's tensors, in their order."""

    slots: tuple[Slot, ...]

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(self.slots, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Layout":
        try:
            return cls(tuple(_slot(*row) for row in json.loads(text)))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise StateError(
                f"received {len(text)} bytes that are not a layout of tensors ({error!r}); "
                "run the same version of Midflight on all members"
            ) from error


@dataclass(frozen=True)
class Snapshot:
    """A member's whole training state. The tensors are the live ones: no step while it is sent."""

    blob: bytes
    tensors: list[Tensor]
    layout: Layout
    digest: int = 0  # of what is no tensor, random number generators aside
    common: tuple[int, ...] = ()  # the numbers of the tensors that must be equal on all members


@dataclass(frozen=True)
class Prepared:
    """Room for one snapshot of a certain layout; once restored, the room is the state itself."""

    layout: Layout
    tensors: list[Tensor]


def layout_of(tensors: Sequence[Tensor], homes: Sequence[Home] = ()) -> Layout:
    """The layout of `tensors`, of which the first ones live at `homes`."""
    housed = [slot_of(tensor, home) for tensor, home in zip(tensors, homes, strict=False)]
    others = [slot_of(tensor) for tensor in tensors[len(homes) :]]
    return Layout((*housed, *others))


def slot_of(tensor: Tensor, home: Home | None = None) -> Slot:
    stride = None
    if not tensor.is_contiguous() and is_dense(tensor):
        stride = tensor.stride()
    device = "cpu" if tensor.is_cpu else tensor.device.type
    return Slot(_NAMES[tensor.dtype], tensor.shape, stride, device, home)


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill one stretch of memory, each once, in whatever order."""
    return tensor.is_contiguous() or _fills(tensor.shape, tensor.stride())


def memory_of(tensor: Tensor) -> Tensor:
    """The bytes of a dense tensor, flat and in place."""
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _fills(shape: Sequence[int], stride: Sequence[int]) -> bool:
    expected = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


def _slot(
    dtype: str, shape: list[int], stride: list[int] | None, device: str, home: list[str] | None
) -> Slot:
    if dtype not in DTYPES or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"no tensor is {dtype}{shape}")
    if stride is not None and not _fills(shape, stride):
        raise ValueError(f"the strides {stride} do not fill {shape}")
    module, key = home or ("", "")
    steps = None if stride is None else tuple(stride)
    return Slot(dtype, tuple(shape), steps, str(device), (module, key) if home else None)
