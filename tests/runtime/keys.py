"""A small world's members, and the keys by which they find each other, within one process."""

import threading
from collections.abc import Sequence

from midflight.errors import WorldChanged
from midflight.protocol.world import Member, World


def world(size: int, generation: int = 3) -> World:
    members = (Member(f"m{rank}", "here", rank, "127.0.0.1") for rank in range(size))
    return World(generation, tuple(members))


class Keys:
    """What the coordinator keeps of a generation."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        self._over = False
        self.asked_for = threading.Event()

    def set_key(self, generation: int, key: str, value: str) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def add_key(self, generation: int, key: str, amount: int, timeout: float) -> int:
        raise NotImplementedError

    def want_keys(self, generation: int, keys: Sequence[str], timeout: float) -> Sequence[str]:
        self.asked_for.set()
        with self._changed:
            self._changed.wait_for(lambda: self._over or set(keys) <= set(self._values))
            if self._over:
                raise WorldChanged("given up")
            return [self._values[key] for key in keys]

    def want_rank_keys(
        self, generation: int, prefix: str, size: int, timeout: float
    ) -> Sequence[str]:
        keys = [f"{prefix}{rank}" for rank in range(size)]
        return self.want_keys(generation, keys, timeout)

    def give_up(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
