"""The store in one ConfigMap, for a job on Kubernetes: it outlives the pod that writes it.

Every write replaces the whole ConfigMap, on the condition that it is still the one that was read;
the API server refuses it otherwise, and it is tried again on what is there now. That is all that is
needed for compare-and-set, and it fences: a write that arrives late changes nothing. The store must
be small: a ConfigMap holds 1 MiB, after compression. It is never made here, so that a role which
may only get, update and watch this one is enough.
"""

import math
import random
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from midflight.backoff import pauses
from midflight.errors import StoreUnavailable
from midflight.store.checks import check_ttl, check_value, encode_key, encode_prefix
from midflight.store.http_client import Json
from midflight.store.interface import Entry, Lease, Snapshot, Store
from midflight.store.kubernetes_address import KubernetesAddress
from midflight.store.kubernetes_document import Document, Term, pack, read, written
from midflight.store.kubernetes_gateway import CONFLICT, Gateway, Refused


@dataclass(frozen=True)
class _Found:
    """The ConfigMap as it was at one moment."""

    config_map: Json
    document: Document

    @property
    def version(self) -> str:
        return str(self.config_map["metadata"]["resourceVersion"])


class KubernetesStore(Store):
    """See `interface.Store`."""

    def __init__(self, address: KubernetesAddress, *, patience: float = 10.0) -> None:
        self._gateway = Gateway(address, patience)
        self._sightings = Sightings()
        self._troubles = 0

    def get(self, key: str) -> Entry | None:
        encode_key(key)
        return self._look().document.entry(key)

    def put(
        self, key: str, value: bytes, *, expect: int | None, lease: Lease | None = None
    ) -> Entry:
        encode_key(key)
        check_value(key, value)
        packed, owner = pack(value), lease.id if lease else 0
        return Entry(key, value, self._commit(lambda now: now.put(key, packed, expect, owner)))

    def delete(self, key: str, *, expect: int | None) -> None:
        encode_key(key)
        self._commit(lambda now: now.delete(key, expect))

    def watch(
        self, prefix: str, *, after: Snapshot | None = None, timeout: float = 0.0
    ) -> Snapshot:
        encode_prefix(prefix)
        deadline = time.monotonic() + timeout
        while True:
            found = self._look()
            current = found.document.snapshot(prefix)
            if current != after or time.monotonic() >= deadline:
                return current
            end = self._sightings.next_end(found.document.leases)
            self._gateway.await_change(found.version, min(deadline, end))

    def lease(self, ttl: float) -> Lease:
        check_ttl(ttl)
        lease = self._commit(lambda now: now.grant(ttl))
        return Lease(lease, ttl, partial(self._renew, lease), partial(self._release, lease))

    def _renew(self, lease: int) -> None:
        # What nobody has seen ending can still be renewed, so nothing is ended first.
        self._commit(lambda now: now.renew(lease), look=self._read)

    def _release(self, lease: int) -> None:
        self._commit(lambda now: now.end(lease), look=self._read)

    def close(self) -> None:
        self._gateway.close()

    def _read(self) -> _Found:
        config_map = self._gateway.read()
        return _Found(config_map, read(config_map, self._gateway.address))

    def _look(self) -> _Found:
        """What is there now; leases that nobody renews are ended first, for everybody."""
        pause = pauses(0.002, 0.1, random.uniform)
        while True:
            found = self._read()
            if overdue := self._overdue(found.document):
                ended = self._replace(found, found.document.end(*overdue))
                if ended is None:
                    self._gateway.rest(next(pause))
                    continue
                return ended
            return found

    def _overdue(self, document: Document) -> list[int]:
        troubles = self._gateway.troubles
        if troubles != self._troubles:
            self._troubles = troubles
            self._sightings.begin_anew()
        return self._sightings.overdue(document.leases, time.monotonic())

    def _commit(
        self,
        change: Callable[[Document], Document],
        look: Callable[[], _Found] | None = None,
    ) -> int:
        """The revision that the change made, on whatever was there when it got through.

        It happens once: whether a try whose answer was lost has arrived is seen by its receipt.
        """
        mark = secrets.token_hex(8)
        deadline = time.monotonic() + self._gateway.patience
        pause = pauses(0.002, 0.1, random.uniform)
        base: int | None = None  # what the first try was made on
        while True:
            found = (look or self._look)()
            if mark in found.document.receipts:
                return found.document.receipts[mark]
            if base is not None and found.document.has_forgotten(base):
                raise self._unsure("was overtaken by other writers too often")
            changed = change(found.document)
            if changed is found.document:
                return changed.revision
            base = found.document.revision if base is None else base
            if self._replace(found, changed.with_receipt(mark)) is not None:
                return changed.revision
            if time.monotonic() >= deadline:
                raise self._unsure(
                    f"found no gap between other writers for {self._gateway.patience:g} s"
                )
            self._gateway.rest(next(pause))

    def _replace(self, found: _Found, document: Document) -> _Found | None:
        """None if it is not the one that was found any more."""
        address = self._gateway.address
        try:
            config_map = self._gateway.replace(written(found.config_map, document, address))
        except Refused as error:
            if error.status != CONFLICT:
                raise
            return None
        return _Found(config_map, document)

    def _unsure(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._gateway.address}: a write {what}; read to know whether it happened"
        )


@dataclass(frozen=True)
class _Sighting:
    renewals: int
    since: float  # when this count was seen first


class Sightings:
    """When a lease is over, without a clock that two machines would have to share.

    Its owner counts renewals. Whoever looks measures by its own clock for how long the count has
    stood still under its eyes: a whole time to live of that ends the lease. So clocks that differ
    never end one too early; but nobody has to be looking, and then it ends late: a time to live
    after somebody began to look. While the API server was away nobody could renew, so that time
    does not count.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, _Sighting] = {}

    def overdue(self, leases: Mapping[int, Term], now: float) -> list[int]:
        """Those that have not been renewed for too long, as these are at `now`."""
        with self._lock:
            self._seen = {
                lease: self._sighting(lease, term.renewals, now) for lease, term in leases.items()
            }
            seen = self._seen
        return [lease for lease, term in leases.items() if now - seen[lease].since >= term.ttl]

    def next_end(self, leases: Mapping[int, Term]) -> float:
        """When the first of them will be overdue if it is not renewed."""
        with self._lock:
            seen = self._seen
        ends = (seen[lease].since + term.ttl for lease, term in leases.items() if lease in seen)
        return min(ends, default=math.inf)

    def begin_anew(self) -> None:
        with self._lock:
            self._seen = {}

    def _sighting(self, lease: int, renewals: int, now: float) -> _Sighting:
        known = self._seen.get(lease)
        return known if known and known.renewals == renewals else _Sighting(renewals, now)
