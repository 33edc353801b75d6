"""What callers may send: bodies and queries as dataclasses, read strictly.

An unknown key is refused by its name, with the nearest right one, before anything else is looked
at; the rest is the codec's business. Every error here is a UsageError.
"""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from midflight.deadlines import RESIZE
from midflight.errors import ProtocolError, UsageError
from midflight.protocol import codec

T = TypeVar("T")


@dataclass(frozen=True)
class NodesBody:
    count: int
    gpus: int = 0


@dataclass(frozen=True)
class ScaleBody:
    """Either `kind` (scaleout, scalein) and `count` or `names`, or `to`."""

    kind: str = ""
    count: int = 1
    to: int | None = None
    names: tuple[str, ...] = ()
    timeout: float = RESIZE
    partial: bool = False


@dataclass(frozen=True)
class ChaosBody:
    what: str
    instance: str


@dataclass(frozen=True)
class PruneBody:
    """`since`: seconds; what ended longer ago is deleted."""

    namespace: str
    since: float


@dataclass(frozen=True)
class JobsQuery:
    namespace: str = ""
    type: str = ""


@dataclass(frozen=True)
class EventsQuery:
    namespace: str = ""


@dataclass(frozen=True)
class WaitQuery:
    until: str
    timeout: float


@dataclass(frozen=True)
class OperationQuery:
    after: int = 0
    timeout: float = 0.0


def read(kind: type[T], value: object, what: str) -> T:
    """A `kind` from plain JSON values."""
    if unknown := list(unknown_keys(kind, value)):
        raise UsageError(f"{what}: {'; '.join(unknown)}")
    try:
        return codec.decode(kind, value)
    except ProtocolError as error:
        raise UsageError(f"{what}: {error}") from None


def unknown_keys(kind: Any, value: object, where: str = "") -> Iterator[str]:
    """Each key that `kind` does not know, in words, nested ones included."""
    if not isinstance(value, Mapping):
        return
    hints = typing.get_type_hints(kind)
    for key, item in value.items():
        if key not in hints:
            yield f"unknown key {where}{key}{nearest(str(key), hints)}"
        elif (inner := _dataclass_in(hints[key])) is not None:
            yield from unknown_keys(inner, item, f"{where}{key}.")


def nearest(word: str, known: typing.Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def _dataclass_in(hint: Any) -> Any:
    """The dataclass that a value of this type is, or may be."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next((a for a in typing.get_args(hint) if dataclasses.is_dataclass(a)), None)
    return hint if dataclasses.is_dataclass(hint) else None


def read_query(kind: type[T], values: Mapping[str, str], what: str) -> T:
    """A `kind` from the text of a query; an empty value stands for the default."""
    hints = typing.get_type_hints(kind)
    given = {name: text for name, text in values.items() if text != "" or name not in hints}
    found = {n: _value(hints[n], t, n, what) if n in hints else t for n, t in given.items()}
    return read(kind, found, what)


def _value(kind: Any, text: str, name: str, what: str) -> object:
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        number = cast(Any, kind)(text)
    except (ValueError, KeyError):
        raise UsageError(f"{what}: {name}: wanted {kind.__name__}, got {text[:60]!r}") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise UsageError(f"{what}: {name}: wanted a finite number, got {text[:60]!r}")
    return cast(object, number)
