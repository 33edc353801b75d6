"""The store in an etcd v3 cluster, for jobs that outlive a machine.

A version is etcd's mod_revision. Entries lie under /PREFIX/ as they are, so that `etcdctl get
--prefix /PREFIX/` shows them; behind them, under a byte no key has, lie the receipts of
`etcd_writes.py`. etcd counts leases in whole seconds and grants no less than its election timeout
allows, two seconds by default.
"""

import math
import time
from base64 import b64decode
from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from midflight.errors import Conflict, LeaseEnded, StoreUnavailable
from midflight.store.checks import (
    check_ttl,
    check_value,
    encode_key,
    encode_prefix,
    end_of_prefix,
)
from midflight.store.etcd_address import EtcdAddress
from midflight.store.etcd_gateway import NOT_FOUND, Gateway, Refused
from midflight.store.etcd_writes import Writes, text
from midflight.store.http_client import Json
from midflight.store.interface import Entry, Lease, Snapshot, Store

P = ParamSpec("P")
T = TypeVar("T")


Work: TypeAlias = Callable[Concatenate["EtcdStore", P], T]


def understood(work: Work[P, T]) -> Work[P, T]:
    """An answer of another form than etcd's is an error of ours: a proxy may have given it."""

    @wraps(work)
    def checked(self: "EtcdStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(self, *args, **kwargs)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            text = f"{self.address} answered what no etcd would ({error!r:.200})"
            raise StoreUnavailable(text) from None

    return checked


class EtcdStore(Store):
    """See `interface.Store`."""

    def __init__(self, address: EtcdAddress, *, patience: float = 10.0) -> None:
        self.address = address
        self._gateway = Gateway(address, patience)
        self._root = f"/{address.prefix}/".encode()
        self._writes = Writes(self._gateway, end_of_prefix(self._root))

    @understood
    def get(self, key: str) -> Entry | None:
        answer = self._gateway.call("/v3/kv/range", {"key": text(self._root + encode_key(key))})
        return self._entry(answer["kvs"][0]) if "kvs" in answer else None

    @understood
    def put(
        self, key: str, value: bytes, *, expect: int | None, lease: Lease | None = None
    ) -> Entry:
        check_value(key, value)
        raw = self._root + encode_key(key)
        put = {"key": text(raw), "value": text(value), "lease": str(lease.id if lease else 0)}
        return Entry(key, value, self._commit(key, {"request_put": put}, expect, lease))

    @understood
    def delete(self, key: str, *, expect: int | None) -> None:
        delete = {"key": text(self._root + encode_key(key))}
        self._commit(key, {"request_delete_range": delete}, expect, None)

    @understood
    def watch(
        self, prefix: str, *, after: Snapshot | None = None, timeout: float = 0.0
    ) -> Snapshot:
        deadline = time.monotonic() + timeout
        while True:
            current = self._snapshot(prefix)
            if current != after or time.monotonic() >= deadline:
                return current
            create = self._range(prefix) | {"start_revision": str(current.revision + 1)}
            self._gateway.await_event(create, deadline)

    @understood
    def lease(self, ttl: float) -> Lease:
        check_ttl(ttl)
        # Safe to repeat: a lease granted to nobody runs out.
        granted = self._gateway.call("/v3/lease/grant", {"TTL": str(math.ceil(ttl))})
        lease = int(granted["ID"])
        renew, release = partial(self._renew, lease), partial(self._release, lease)
        return Lease(lease, float(granted["TTL"]), renew, release)

    def close(self) -> None:
        self._gateway.close()

    @understood
    def _renew(self, lease: int) -> None:
        answer = self._gateway.call("/v3/lease/keepalive", {"ID": str(lease)})["result"]
        if int(answer.get("TTL", 0)) <= 0:
            raise _ended(self._gateway, lease)

    @understood
    def _release(self, lease: int) -> None:
        try:
            self._gateway.call("/v3/lease/revoke", {"ID": str(lease)})
        except Refused as error:
            if error.code != NOT_FOUND:
                raise

    def _commit(self, key: str, operation: Json, expect: int | None, lease: Lease | None) -> int:
        try:
            outcome = self._writes.commit(self._root + encode_key(key), operation, expect)
        except Refused as error:
            if error.code != NOT_FOUND:
                raise
            if lease is not None and _is_over(self._gateway, lease.id):
                raise _ended(self._gateway, lease.id) from error
            raise StoreUnavailable(
                f"{self._gateway.address}: lost its record of this client; try again"
            ) from error
        if not outcome.held:
            if expect is None:
                raise ValueError("a comparison failed that nobody has asked for")
            raise Conflict(
                key, expect, None if outcome.current is None else self._entry(outcome.current)
            )
        return outcome.version

    def _snapshot(self, prefix: str) -> Snapshot:
        answer = self._gateway.call("/v3/kv/range", self._range(prefix))
        entries = (self._entry(found) for found in answer.get("kvs", []))
        revision = int(answer["header"]["revision"])
        return Snapshot(prefix, {entry.key: entry for entry in entries}, revision)

    def _range(self, prefix: str) -> Json:
        raw = self._root + encode_prefix(prefix)
        return {"key": text(raw), "range_end": text(end_of_prefix(raw))}

    def _entry(self, found: Json) -> Entry:
        key = b64decode(found["key"])[len(self._root) :].decode()
        return Entry(key, b64decode(found.get("value", "")), int(found["mod_revision"]))


def _is_over(gateway: Gateway, lease_id: int) -> bool:
    answer = gateway.call("/v3/lease/timetolive", {"ID": str(lease_id)})
    return int(answer.get("TTL", 0)) <= 0


def _ended(gateway: Gateway, lease_id: int) -> LeaseEnded:
    return LeaseEnded(f"{gateway.address}: lease {lease_id} is over; take a new one")
