"""`@message`: a frozen dataclass that loads quickly.

`@dataclass(frozen=True)` compiles six methods for every class, about 0.4 ms, and every process of a
job loads all messages when it starts. Here only `__init__` is compiled; what the other methods do
is the same for every class, so they are written once.
"""

from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any, TypeVar

from midflight.python310 import dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def message(kind: type[T]) -> type[T]:
    kind.__doc__ = kind.__doc__ or kind.__name__  # dataclass would make one of the signature
    for method in (__repr__, __eq__, __hash__, __setattr__, __delattr__):
        setattr(kind, method.__name__, method)
    return dataclass(repr=False, eq=False)(kind)


def _values(of: Any) -> tuple[object, ...]:
    return tuple(getattr(of, each.name) for each in fields(of))


def __repr__(self: Any) -> str:
    values = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
    return f"{type(self).__qualname__}({values})"


def __eq__(self: Any, other: object) -> bool:
    if type(self) is not type(other):
        return NotImplemented
    return _values(self) == _values(other)


def __hash__(self: Any) -> int:
    return hash(_values(self))


def __setattr__(self: Any, name: str, value: object) -> None:
    """Once, by __init__."""
    if name in vars(self):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def __delattr__(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
