"""Frozen dataclasses to JSON and back, strictly.

What is decoded here may come from a stranger, so nothing is guessed: an unknown type, an unknown
or missing field, a value of the wrong kind each end in a ProtocolError that names the place.
Supported are str, int, float, bool, None, optional values, tuples and sets of one kind, dicts
with string keys, enums with string values and nested dataclasses. The wire (`wire.py`) and the
coordinator's saved state use the same codec.
"""

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from midflight.errors import ProtocolError

T = TypeVar("T")
Decoder = Callable[[object], Any]
_PLAIN = frozenset((str, int, float, bool, type(None)))
_WRITER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class _Wrong(Exception):
    """What is wrong with a value. Where it stands is told by the values around it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.where = ""

    def add(self, place: str) -> None:
        self.where = place + self.where


def encode(value: object) -> Any:
    """Turn a dataclass (or anything it may contain) into plain JSON values."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if dataclasses.is_dataclass(value):
        return {name: encode(getattr(value, name)) for name in _field_names(cast(Any, kind))}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(encode(item) for item in value)
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, int | float | str):
        return value
    raise ProtocolError(f"a value of type {type(value).__name__} cannot be sent")


def as_view(value: object) -> Any:
    """As `encode`, for people's programs: the fields of dataclasses are spelled in camelCase."""
    if dataclasses.is_dataclass(value):
        names = _field_names(cast(Any, type(value)))
        return {_camel(name): as_view(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [as_view(item) for item in value]
    return encode(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def decode(kind: type[T], value: object) -> T:
    """Build a `kind` from plain JSON values, or say exactly what is wrong with them."""
    try:
        return cast(T, _decoder(cast(Any, kind))(value))
    except _Wrong as error:
        raise ProtocolError(f"{kind.__name__}{error.where}: {error}") from None


def dumps(value: object) -> bytes:
    try:
        return _WRITER.encode(encode(value)).encode()
    except ValueError as error:  # not a finite number, or no valid text
        raise ProtocolError(f"a {type(value).__name__} cannot be sent: {error}") from None


def loads(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"wanted JSON, got {data[:40]!r}: {error}") from None


@functools.cache
def _decoder(kind: Any) -> Decoder:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional(kind)
    if origin in (tuple, frozenset):
        return _sequence(_decoder(typing.get_args(kind)[0]), origin)
    if origin is dict or origin is Mapping or origin is typing.get_origin(Mapping[str, str]):
        return _mapping(_decoder(typing.get_args(kind)[1]))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(cast(type, kind))
    return _plain(kind)


def _plain(kind: type) -> Decoder:
    def read(value: object) -> Any:
        if type(value) is not kind:
            raise _Wrong(f"wanted {kind.__name__}, got {_show(value)}")
        return value

    return {float: _read_float, str: _read_str}.get(kind, read)


def _read_float(value: object) -> float:
    """JSON has integers where Python has whole floats, and Python's reader lets infinity pass."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise _Wrong(f"wanted float, got {_show(value)}")


def _read_str(value: object) -> str:
    """Half a surrogate pair can be written in JSON, but is no text that could be passed on."""
    if type(value) is str and (value.isascii() or _is_text(value)):
        return value
    raise _Wrong(f"wanted str, got {_show(value)}")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _optional(kind: Any) -> Decoder:
    choices = [arg for arg in typing.get_args(kind) if arg is not types.NoneType]
    if len(choices) != 1:
        raise TypeError(f"{kind} is not an optional value; the codec knows no other unions")
    inner = _decoder(choices[0])
    return lambda value: None if value is None else inner(value)


def _sequence(inner: Decoder, into: Callable[..., Any]) -> Decoder:
    def read(value: object) -> Any:
        if not isinstance(value, list):
            raise _Wrong(f"wanted a list, got {_show(value)}")
        items = []
        try:
            for item in value:
                items.append(inner(item))
        except _Wrong as error:
            error.add(f"[{len(items)}]")
            raise
        return into(items)

    return read


def _mapping(inner: Decoder) -> Decoder:
    def read(value: object) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"wanted an object, got {_show(value)}")
        for key in value:
            _read_str(key)
        return _each(value, lambda key: inner)

    return read


def _enum(kind: type[enum.Enum]) -> Decoder:
    known = {member.value: member for member in kind}

    def read(value: object) -> Any:
        if not isinstance(value, str) or value not in known:
            raise _Wrong(f"wanted one of {sorted(known)}, got {_show(value)}")
        return known[value]

    return read


def _dataclass(kind: type) -> Decoder:
    hints = typing.get_type_hints(kind)
    fields = {field.name: _decoder(hints[field.name]) for field in dataclasses.fields(kind)}
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def read(value: object) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"wanted an object, got {_show(value)}")
        if unknown := value.keys() - fields.keys():
            raise _Wrong(f"unknown field {_show(min(unknown))}")
        if missing := required - value.keys():
            raise _Wrong(f"field {min(missing)!r} is missing")
        return kind(**_each(value, fields.__getitem__))

    return read


def _each(values: dict[str, object], decoder: Callable[[str], Decoder]) -> dict[str, Any]:
    """Every item, by the decoder of its key."""
    made: dict[str, Any] = {}
    key = ""
    try:
        for key, item in values.items():
            made[key] = decoder(key)(item)
    except _Wrong as error:
        error.add(f".{key}")
        raise
    return made


def _show(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
