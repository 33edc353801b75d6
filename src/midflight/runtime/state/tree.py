"""Turns nested training state into JSON and a list of tensors, and back.

JSON carries the structure and everything small, tensors are only numbered: they are neither copied
nor looked into, and two references to the same memory stay one tensor. Types come back as they
went, dicts keep their order, floats their bits; only a defaultdict comes back as a plain dict.
Containers that are referenced twice arrive twice. What is neither a plain value, a container, a
tensor nor a numpy array is refused with the path that leads to it: there is no pickle here, so
that nothing a peer sends can run as code.
"""

import base64
import hashlib
import json
import math
import struct
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from midflight.errors import StateError

Json = Any
PLAIN_INT = 2**63  # longer ones travel as hex: Python parses at most 4300 decimal digits
KEY_TYPES = (type(None), bool, int, float, str, bytes, tuple)
DTYPES = {str(v): v for v in vars(torch).values() if isinstance(v, torch.dtype)}
ADVICE = (
    "keep numbers, strings, lists, dicts, tensors and numpy arrays in it, or make the object "
    "turn itself into these in state_dict() and back in load_state_dict()"
)


@dataclass(frozen=True)
class Packed:
    """A tree, as JSON bytes and the tensors that it refers to by number."""

    blob: bytes
    tensors: list[Tensor]


def pack(tree: object, known: Sequence[Tensor] = ()) -> Packed:
    """Pack `tree`; the tensors begin with all of `known`, in that order, used or not."""
    packer = _Packer(known)
    try:
        tagged = packer.encode(tree)
        blob = json.dumps(tagged, separators=(",", ":"), allow_nan=False).encode()
    except _Refused as refused:
        path = _path(refused.trail[::-1])
        raise StateError(f"{path}: {refused} cannot be handed to a newcomer; {ADVICE}") from None
    except RecursionError:
        raise StateError(
            "the state: a value that is nested too deep, or contains itself, cannot be handed to "
            f"a newcomer; {ADVICE}"
        ) from None
    return Packed(blob, packer.tensors)


def unpack(blob: bytes, tensors: Sequence[Tensor]) -> Any:
    """The tree that was packed, with the given tensors in the places of the packed ones."""
    unpacker = _Unpacker(tensors)
    try:
        return json.loads(blob, object_hook=unpacker.decode)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, struct.error) as error:
        raise StateError(
            f"received a state of {len(blob)} bytes that is not a packed tree ({error}); "
            "run the same version of Midflight on all members"
        ) from error


def number_of(content: bytes) -> int:
    """A hash that fits where members exchange numbers; never 0."""
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


class _Refused(Exception):
    """Says what was refused; collects where on its way up, innermost step first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.trail: list[object] = []


class _Packer:
    def __init__(self, known: Sequence[Tensor]) -> None:
        self.tensors = list(known)
        self._numbers: dict[int, list[int]] = {}  # by address in memory
        self._numpy: Any = sys.modules.get("numpy")  # not loaded: then no value is numpy's
        for number, tensor in enumerate(known):
            self._numbers.setdefault(tensor.data_ptr(), []).append(number)

    def encode(self, value: object) -> Json:
        kind = type(value)
        if kind in _PLAIN:
            return value
        encoder = _ENCODERS.get(kind)
        if encoder is not None:
            return encoder(self, value)
        if self._numpy is not None:
            if isinstance(value, self._numpy.ndarray):
                return self._array(value)
            if isinstance(value, self._numpy.generic):
                return {"$scalar": self._array(self._numpy.asarray(value))}
        raise _Refused(f"a value of type {_type_name(value)}")

    def on_integer(self, value: int) -> Json:
        return value if -PLAIN_INT <= value < PLAIN_INT else {"$int": hex(value)}

    def on_float(self, value: float) -> Json:
        # nan and the infinities have no JSON; their bits keep the payload of a nan too.
        return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}

    def on_complex(self, value: complex) -> Json:
        return {"$complex": [self.on_float(value.real), self.on_float(value.imag)]}

    def on_bytes(self, value: bytes) -> Json:
        return {"$bytes": base64.b64encode(value).decode()}

    def on_list(self, value: Sequence[object]) -> list[Json]:
        encoded: list[Json] = []
        try:
            for item in value:
                encoded.append(self.encode(item))
        except _Refused as refused:
            refused.trail.append(len(encoded))
            raise
        return encoded

    def on_tuple(self, value: Sequence[object]) -> Json:
        return {"$tuple": self.on_list(value)}

    def on_size(self, value: Sequence[int]) -> Json:
        return {"$size": list(value)}

    def on_set(self, value: Sequence[object]) -> Json:
        return {"$set": self._in_one_order(value)}

    def on_frozenset(self, value: Sequence[object]) -> Json:
        return {"$frozenset": self._in_one_order(value)}

    def _in_one_order(self, value: Sequence[object]) -> list[Json]:
        """A set's own order is another one in each process; equal sets are to be equal JSON."""
        return sorted(self.on_list(value), key=json.dumps)

    def on_dict(self, value: dict[object, object]) -> Json:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return self._at_keys(value)
        return {"$dict": self._items(value)}

    def on_ordered(self, value: dict[object, object]) -> Json:
        return {"$ordered": self._items(value)}

    def on_counter(self, value: dict[object, object]) -> Json:
        return {"$counter": self._items(value)}

    def _items(self, value: dict[object, object]) -> Json:
        keys = [self._key(key) for key in value]
        return list(zip(keys, self._at_keys(value).values(), strict=True))

    def _at_keys(self, value: dict[object, object]) -> dict[object, Json]:
        encoded: dict[object, Json] = {}
        key: object = None
        try:
            for key, item in value.items():
                encoded[key] = self.encode(item)
        except _Refused as refused:
            refused.trail.append(key)
            raise
        return encoded

    def on_dtype(self, value: object) -> Json:
        return {"$dtype": str(value)}

    def on_device(self, value: object) -> Json:
        return {"$device": str(value)}

    def on_tensor(self, value: Tensor) -> Json:
        _check(value)
        there = self._numbers.setdefault(value.data_ptr(), [])
        for number in there:
            if _same(self.tensors[number], value):
                return {"$tensor": number}
        there.append(len(self.tensors))
        self.tensors.append(value.resolve_conj().resolve_neg())
        return {"$tensor": there[-1]}

    def _array(self, array: Any) -> Json:
        if array.dtype.hasobject or array.dtype.names is not None:
            raise _Refused(f"a numpy array of {array.dtype}")
        flat = self._numpy.ascontiguousarray(array).reshape(-1).view(self._numpy.uint8)
        memory = torch.from_numpy(flat if flat.flags.writeable else flat.copy())
        return {"$array": [array.dtype.str, list(array.shape), self.on_tensor(memory)]}

    def _key(self, key: object) -> Json:
        parts = key if type(key) is tuple else (key,)
        for part in parts:
            if type(part) not in KEY_TYPES:
                raise _Refused(f"a dict with a key of type {_type_name(part)}")
        return self.encode(key)


_PLAIN = frozenset({type(None), bool, str})

_ENCODERS: dict[type, Callable[[_Packer, Any], Json]] = {
    int: _Packer.on_integer,
    float: _Packer.on_float,
    complex: _Packer.on_complex,
    bytes: _Packer.on_bytes,
    list: _Packer.on_list,
    tuple: _Packer.on_tuple,
    set: _Packer.on_set,
    frozenset: _Packer.on_frozenset,
    dict: _Packer.on_dict,
    defaultdict: _Packer.on_dict,
    OrderedDict: _Packer.on_ordered,
    Counter: _Packer.on_counter,
    torch.Size: _Packer.on_size,
    torch.dtype: _Packer.on_dtype,
    torch.device: _Packer.on_device,
    Tensor: _Packer.on_tensor,
    torch.nn.Parameter: _Packer.on_tensor,
    torch.nn.Buffer: _Packer.on_tensor,
}


class _Unpacker:
    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors

    def decode(self, found: dict[str, Any]) -> Any:
        """Called by the JSON parser for each object, innermost first."""
        if len(found) != 1:
            return found
        ((tag, inner),) = found.items()
        if not tag.startswith("$"):
            return found
        if tag == "$tensor":
            return self._tensors[inner]
        return _DECODERS[tag](inner)


def _array(inner: list[Any]) -> Any:
    dtype, shape, memory = inner
    return memory.numpy().view(dtype).reshape(shape)


def _float(inner: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(inner))
    return float(value)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$int": lambda inner: int(inner, 16),
    "$float": _float,
    "$complex": lambda inner: complex(*inner),
    "$bytes": base64.b64decode,
    "$tuple": tuple,
    "$set": set,
    "$frozenset": frozenset,
    "$dict": dict,
    "$ordered": OrderedDict,
    "$counter": lambda inner: Counter(dict(inner)),
    "$size": torch.Size,
    "$dtype": DTYPES.__getitem__,
    "$device": torch.device,
    "$array": _array,
    "$scalar": lambda inner: inner[()],
}


def _check(tensor: Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")
        raise _Refused(f"a {kind} tensor on device {tensor.device}")


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors at one address are the same elements in the same order."""
    if one is other:
        return True
    return one.numel() > 0 and _view_of(one) == _view_of(other)


def _view_of(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _path(trail: list[object]) -> str:
    """`optimizer.state[3].foo`"""
    if not trail:
        return "the state"
    first, *rest = trail
    steps = [f".{s}" if isinstance(s, str) and s.isidentifier() else f"[{s!r}]" for s in rest]
    return f"{first}{''.join(steps)}"
