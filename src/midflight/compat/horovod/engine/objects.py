"""Plain Python values as one byte tensor, and back, so that collectives can carry them.

The same packing that hands state to a newcomer: numbers, strings, containers, tensors and arrays.
There is no pickle in it: what another member sends is never run as code.
"""

import json
import struct
from typing import Any

import torch
from torch import Tensor

from midflight.errors import ProtocolError
from midflight.runtime.state.tree import DTYPES, pack, unpack

_HEAD = struct.Struct(">II")  # lengths of the tree and of the list of tensors


def to_bytes(value: Any) -> Tensor:
    """A flat tensor of uint8."""
    packed = pack(value)
    tensors = [tensor.detach().cpu().contiguous() for tensor in packed.tensors]
    shapes = json.dumps([[str(tensor.dtype), list(tensor.shape)] for tensor in tensors]).encode()
    head = _HEAD.pack(len(packed.blob), len(shapes)) + packed.blob + shapes
    parts = [torch.frombuffer(bytearray(head), dtype=torch.uint8)]
    parts += [tensor.reshape(-1).view(torch.uint8) for tensor in tensors if tensor.numel()]
    return torch.cat(parts)


def from_bytes(data: Tensor) -> Any:
    try:
        tree, shapes = _HEAD.unpack(_text(data, 0, _HEAD.size))
        start = _HEAD.size
        blob = _text(data, start, tree)
        listed = json.loads(_text(data, start + tree, shapes))
        position = start + tree + shapes
        tensors = []
        for name, shape in listed:
            tensor = torch.empty(shape, dtype=DTYPES[name])
            length = tensor.numel() * tensor.element_size()
            if length:
                flat = tensor.view(-1).view(torch.uint8)
                flat.copy_(data[position : position + length])
            tensors.append(tensor)
            position += length
    except (struct.error, ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
        raise ProtocolError(f"received {data.numel()} bytes that are no packed value") from error
    return unpack(blob, tensors)


def _text(data: Tensor, start: int, length: int) -> bytes:
    return data[start : start + length].numpy().tobytes()
