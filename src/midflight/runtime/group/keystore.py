"""A torch Store whose keys live in the coordinator, one scope per generation.

No member hosts a store that dies with it, and a wait for a peer that will never come ends as soon
as the generation is given up. Gloo asks for one key per rank, one after the other; all of them are
fetched with the first question.
"""

import base64
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from midflight.runtime.torch_private import Store

NCCL_KEYS = "nccl"  # its keys begin with that: they are numbered, but not by rank
_PER_RANK = re.compile(rf"(?!{NCCL_KEYS}/)(.*/)(\d+)")


class KeyLine(Protocol):
    """The part of the link that carries keys. Raises WorldChanged when the scope is given up."""

    def set_key(self, generation: int, key: str, value: str) -> None: ...
    def add_key(self, generation: int, key: str, amount: int, timeout: float) -> int: ...
    def want_keys(self, generation: int, keys: Sequence[str], timeout: float) -> Sequence[str]: ...
    def want_rank_keys(
        self, generation: int, prefix: str, size: int, timeout: float
    ) -> Sequence[str]:
        """The values of the keys `prefix`0, `prefix`1, ... of all ranks."""
        ...


class KeyStore(Store):
    def __init__(
        self, line: KeyLine, generation: int, size: int, seconds: float, scope: str = ""
    ) -> None:
        """`scope` tells the keys of a group of some members from those of the group of all."""
        super().__init__()
        self._line = line
        self._scope = f"{scope}/" if scope else ""
        self._generation = generation
        self._size = size
        self._seconds = seconds
        self._known: dict[str, bytes] = {}
        self._own: list[bytes] = []

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._own.append(data)
        self._line.set_key(self._generation, self._scope + key, base64.b64encode(data).decode())

    def values(self) -> list[bytes]:
        """All that this member has put in or has read so far; from any thread."""
        return [*self._own, *tuple(self._known.values())]

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._known[key]

    def add(self, key: str, amount: int) -> int:
        return self._line.add_key(self._generation, self._scope + key, amount, self._seconds)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        missing = [key for key in keys if key not in self._known]
        if not missing:
            return
        seconds = min(self._seconds, timeout.total_seconds()) if timeout else self._seconds
        for prefix in dict.fromkeys(self._prefix(key) for key in missing):
            if prefix is not None:
                self._fetch_ranks(prefix, seconds)
        others = [key for key in missing if key not in self._known]
        if others:
            scoped = [self._scope + key for key in others]
            self._learn(others, self._line.want_keys(self._generation, scoped, seconds))

    def _fetch_ranks(self, prefix: str, seconds: float) -> None:
        """Keys of the form PREFIX/RANK are wanted for all ranks sooner or later."""
        values = self._line.want_rank_keys(
            self._generation, self._scope + prefix, self._size, seconds
        )
        self._learn([f"{prefix}{rank}" for rank in range(self._size)], values)

    def _learn(self, keys: Sequence[str], values: Sequence[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self._known[key] = base64.b64decode(value)

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._known for key in keys)

    def set_timeout(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self._seconds)

    def _prefix(self, key: str) -> str | None:
        """Of a key of some rank's; None: it is another kind of key."""
        match = _PER_RANK.fullmatch(key)
        return match[1] if match and int(match[2]) < self._size else None
