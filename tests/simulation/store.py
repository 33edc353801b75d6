"""A store in memory with the faults of a real one: full, or away, and writes that arrive anyway."""

from midflight.errors import Conflict, StoreError, StoreUnavailable
from midflight.store.interface import Entry, Lease, Snapshot


class SimStore:
    """See `midflight.store.interface.Store`; one coordinator's entry is all it holds."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self.away = False
        self.full = False
        self.arrives = False  # what is written while it is away is there, though nobody hears it

    def get(self, key: str) -> Entry | None:
        if self.away:
            raise StoreUnavailable("the store is away")
        return self._entries.get(key)

    def peek(self, key: str) -> Entry | None:
        """For the simulation's own eyes."""
        return self._entries.get(key)

    def put(
        self, key: str, value: bytes, *, expect: int | None, lease: Lease | None = None
    ) -> Entry:
        if self.full:
            raise StoreError("no space is left")
        if self.away and not self.arrives:
            raise StoreUnavailable("the store is away")
        current = self._entries.get(key)
        if expect is not None and expect != (current.version if current else 0):
            if self.away:
                raise StoreUnavailable("the store is away")
            raise Conflict(key, expect, current)
        self._revision += 1
        entry = self._entries[key] = Entry(key, value, self._revision)
        if self.away:
            raise StoreUnavailable("the store gave no answer")
        return entry

    def delete(self, key: str, *, expect: int | None) -> None:
        raise NotImplementedError("a coordinator deletes nothing")

    def watch(
        self, prefix: str, *, after: Snapshot | None = None, timeout: float = 0.0
    ) -> Snapshot:
        raise NotImplementedError("a coordinator watches nothing")

    def lease(self, ttl: float) -> Lease:
        raise NotImplementedError("a coordinator takes no lease")

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> "SimStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
