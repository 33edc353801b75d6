"""What a store is: five verbs, and the values they speak of.

Versions come from one counter for the whole store that never goes back, so a version names one
write for ever: an entry that was deleted and written again never looks unchanged. A watch compares
states instead of replaying events: several changes may be seen as one, but the last is never
missed, however long nobody watched. Calls block, may come from several threads, and give up with
StoreUnavailable after the patience the store was opened with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Self

# What etcd takes by default, with room for the key and the rest of the request.
MAX_VALUE = 1024 * 1024


@dataclass(frozen=True)
class Entry:
    """A key as it was at one moment."""

    key: str
    value: bytes
    version: int  # of the last write to it; at least 1


@dataclass(frozen=True)
class Snapshot:
    """All entries under a prefix at one moment. Two are equal if the entries are."""

    prefix: str
    entries: Mapping[str, Entry]  # in the order of the keys' UTF-8 bytes
    revision: int = field(compare=False)  # of the store; entries elsewhere move it too


@dataclass(frozen=True)
class Lease:
    """Keeps the entries written with it alive for as long as somebody renews it."""

    id: int
    ttl: float  # seconds after a renewal at which it ends; may be more than was asked for
    renew: Callable[[], None]  # raises LeaseEnded if it is over already
    release: Callable[[], None]  # ends it, and its entries; does nothing if it is over already


class Store(Protocol):
    """Compare-and-set, watch and leases."""

    def get(self, key: str) -> Entry | None:
        """The entry as of now: every write that was acknowledged to anybody is seen."""
        ...

    def put(
        self, key: str, value: bytes, *, expect: int | None, lease: Lease | None = None
    ) -> Entry:
        """Writes durably if the version is `expect` (0: no such key; None: whatever it is).

        Otherwise raises Conflict. The entry then belongs to `lease`, or to none. After
        StoreUnavailable the write may or may not have happened; read to know.
        """
        ...

    def delete(self, key: str, *, expect: int | None) -> None:
        """Removes the key on the same terms; with None a missing key is fine."""
        ...

    def watch(
        self, prefix: str, *, after: Snapshot | None = None, timeout: float = 0.0
    ) -> Snapshot:
        """The entries under `prefix`, as soon as they differ from those in `after`.

        When they still do not after `timeout` seconds, the answer equals `after`. Without `after`
        it comes at once. A prefix is plain text: "a" covers "a", "ab" and "a/b".
        """
        ...

    def lease(self, ttl: float) -> Lease:
        """A new lease that ends `ttl` seconds after its last renewal."""
        ...

    def close(self) -> None:
        """Wakes whoever waits, with a StoreError. Leases are left to run out."""
        ...

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
