"""The keys through which members of one generation find each other.

A process group needs a small key-value store for its rendezvous. It lives here, so that no member
has to host one that dies with it. Keys belong to a generation and are forgotten with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from midflight.errors import ProtocolError

Reply = Callable[[tuple[str, ...]], None]


@dataclass
class _Waiter:
    keys: tuple[str, ...]
    missing: set[str]
    reply: Reply


@dataclass
class _Generation:
    values: dict[str, str] = field(default_factory=dict)
    waiters: dict[str, list[_Waiter]] = field(default_factory=dict)
    added: dict[tuple[str, int], str] = field(default_factory=dict)  # by who asked, and its ticket


class Keys:
    def __init__(self) -> None:
        self._generations: dict[int, _Generation] = {}

    def set(self, generation: int, key: str, value: str) -> None:
        scope = self._generations.setdefault(generation, _Generation())
        scope.values[key] = value
        for waiter in scope.waiters.pop(key, []):
            waiter.missing.discard(key)
            if not waiter.missing:
                waiter.reply(tuple(scope.values[name] for name in waiter.keys))

    def add(self, generation: int, key: str, amount: int, asked: tuple[str, int]) -> str:
        """Count up from 0; the new value. Who asks again, after a reconnect, is told the same."""
        scope = self._generations.setdefault(generation, _Generation())
        if asked in scope.added:
            return scope.added[asked]
        before = scope.values.get(key, "0")
        if not before.removeprefix("-").isdecimal():
            raise ProtocolError(f"key {key!r} holds no number, so nothing can be added to it")
        total = str(int(before) + amount)
        self.set(generation, key, total)
        scope.added[asked] = total
        return total

    def want(self, generation: int, keys: tuple[str, ...], reply: Reply) -> None:
        """Call `reply` with the values as soon as all keys are there."""
        scope = self._generations.setdefault(generation, _Generation())
        missing = {key for key in keys if key not in scope.values}
        if not missing:
            reply(tuple(scope.values[key] for key in keys))
            return
        waiter = _Waiter(keys, missing, reply)
        for key in missing:
            scope.waiters.setdefault(key, []).append(waiter)

    def forget_before(self, generation: int) -> None:
        for old in [number for number in self._generations if number < generation]:
            del self._generations[old]
