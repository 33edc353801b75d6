"""The keys through which members of one generation find each other.

A process group needs a small key-value store for its rendezvous. It lives here, so that no member
has to host one that dies with it. Keys belong to a generation and are forgotten with it. Every
member wants the keys of all ranks; that answer is made once, however many ask for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from midflight.errors import ProtocolError
from midflight.protocol.messages import RankKeys
from midflight.protocol.wire import encode_frame

MOST_RANKS = 1 << 20
Reply = Callable[[tuple[str, ...]], None]


@dataclass
class _Waiter:
    keys: tuple[str, ...]
    missing: set[str]
    reply: Reply


@dataclass
class _Ranks:
    """The keys of all ranks, of one prefix."""

    missing: set[str]
    waiting: list[Callable[[bytes], None]] = field(default_factory=list)
    frame: bytes | None = None  # None: some are missing


@dataclass
class _Generation:
    values: dict[str, str] = field(default_factory=dict)
    ranks: dict[tuple[str, int], _Ranks] = field(default_factory=dict)  # by prefix and size
    waiters: dict[str, list[_Waiter]] = field(default_factory=dict)
    added: dict[tuple[str, int], str] = field(default_factory=dict)  # by who asked, and its ticket


class Keys:
    def __init__(self) -> None:
        self._generations: dict[int, _Generation] = {}

    def set(self, generation: int, key: str, value: str) -> None:
        scope = self._generations.setdefault(generation, _Generation())
        scope.values[key] = value
        for (prefix, size), ranks in scope.ranks.items():
            if key in ranks.missing:
                ranks.missing.discard(key)
                self._answer_ranks(generation, prefix, size)
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
            raise ProtocolError(f"key {key!r} is not a number, so nothing can be added to it")
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

    def want_ranks(
        self, generation: int, prefix: str, size: int, send: Callable[[bytes], None]
    ) -> None:
        """Call `send` with a frame of the keys of all ranks as soon as they are there."""
        if not 0 < size <= MOST_RANKS:
            raise ProtocolError(f"wanted the keys of 1 to {MOST_RANKS} ranks, not of {size}")
        scope = self._generations.setdefault(generation, _Generation())
        ranks = scope.ranks.get((prefix, size))
        if ranks is None:
            names = (f"{prefix}{rank}" for rank in range(size))
            ranks = _Ranks({name for name in names if name not in scope.values})
            scope.ranks[(prefix, size)] = ranks
        ranks.waiting.append(send)
        self._answer_ranks(generation, prefix, size)

    def _answer_ranks(self, generation: int, prefix: str, size: int) -> None:
        scope = self._generations[generation]
        ranks = scope.ranks[(prefix, size)]
        if ranks.missing:
            return
        if ranks.frame is None:
            values = tuple(scope.values[f"{prefix}{rank}"] for rank in range(size))
            ranks.frame = encode_frame(RankKeys(generation, prefix, values))
        waiting, ranks.waiting = ranks.waiting, []
        for send in waiting:
            send(ranks.frame)

    def forget_before(self, generation: int) -> None:
        for old in [number for number in self._generations if number < generation]:
            del self._generations[old]
