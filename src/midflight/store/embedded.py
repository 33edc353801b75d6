"""The store in a SQLite file: the default, nothing to install, for processes of one machine.

A lease ends by this machine's clock. Whoever looks at the file first after that, in whichever
process, removes it and its entries as an ordinary write, so everybody agrees on when it happened;
until then its owner may still renew it. Watchers in the same process are woken, those in others
look every few milliseconds.
"""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from midflight.backoff import pauses
from midflight.errors import Conflict, LeaseEnded
from midflight.store.checks import (
    check_ttl,
    check_value,
    encode_key,
    encode_prefix,
    end_of_prefix,
)
from midflight.store.interface import Entry, Lease, Snapshot, Store
from midflight.store.sqlite_file import SqliteFile

_FIRST_LOOK = 0.002  # seconds; then ever more rarely, down to a half percent of a core
_IDLE_LOOK = 0.05


class EmbeddedStore(Store):
    """See `interface.Store`."""

    def __init__(
        self, path: str, *, patience: float = 10.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = SqliteFile(path, patience)
        self._clock = clock
        self._changed = threading.Condition()

    def get(self, key: str) -> Entry | None:
        raw = encode_key(key)
        with self._reading() as connection:
            return _entry(connection, key, raw)

    def put(
        self, key: str, value: bytes, *, expect: int | None, lease: Lease | None = None
    ) -> Entry:
        raw = encode_key(key)
        check_value(key, value)
        with self._writing() as connection:
            _compare(connection, key, raw, expect)
            if lease is not None:
                self._require(connection, lease.id)
            version = _next_revision(connection)
            connection.execute(
                "INSERT OR REPLACE INTO entries (key, value, version, lease) VALUES (?, ?, ?, ?)",
                (raw, value, version, lease.id if lease else None),
            )
        return Entry(key, value, version)

    def delete(self, key: str, *, expect: int | None) -> None:
        raw = encode_key(key)
        with self._writing() as connection:
            _compare(connection, key, raw, expect)
            if connection.execute("DELETE FROM entries WHERE key = ?", (raw,)).rowcount:
                _next_revision(connection)

    def watch(
        self, prefix: str, *, after: Snapshot | None = None, timeout: float = 0.0
    ) -> Snapshot:
        deadline = time.monotonic() + timeout
        while True:
            current = self._snapshot(prefix)
            if current != after or time.monotonic() >= deadline:
                return current
            self._await_revision_after(current.revision, deadline)

    def lease(self, ttl: float) -> Lease:
        check_ttl(ttl)
        with self._writing() as connection:
            row = connection.execute(
                "INSERT INTO leases (ttl, expires) VALUES (?, ?)", (ttl, self._clock() + ttl)
            )
            assert row.lastrowid is not None
            lease = row.lastrowid
        return Lease(lease, ttl, partial(self._renew, lease, ttl), partial(self._release, lease))

    def close(self) -> None:
        self._file.close()
        with self._changed:
            self._changed.notify_all()

    def _renew(self, lease: int, ttl: float) -> None:
        # Not through _writing(): what nobody has seen ending can still be renewed, say by the
        # first to wake on a laptop that slept.
        with self._file.transaction("IMMEDIATE") as connection:
            self._require(connection, lease)
            connection.execute(
                "UPDATE leases SET expires = ? WHERE id = ?", (self._clock() + ttl, lease)
            )

    def _release(self, lease: int) -> None:
        with self._writing() as connection:
            _end(connection, lease)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._end_overdue()
        with self._file.transaction("DEFERRED") as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._file.transaction("IMMEDIATE") as connection:
            now = self._clock()
            overdue = connection.execute("SELECT id FROM leases WHERE expires <= ?", (now,))
            for (lease_id,) in overdue.fetchall():
                _end(connection, lease_id)
            yield connection
        with self._changed:
            self._changed.notify_all()

    def _end_overdue(self) -> int:
        """Ends the leases whose time is up; the revision after that."""
        with self._file.transaction("DEFERRED") as connection:
            revision, overdue = connection.execute(
                "SELECT revision, EXISTS (SELECT 1 FROM leases WHERE expires <= ?) FROM counter",
                (self._clock(),),
            ).fetchone()
        if overdue:
            with self._writing() as connection:
                revision = _revision(connection)
        return int(revision)

    def _snapshot(self, prefix: str) -> Snapshot:
        raw = encode_prefix(prefix)
        with self._reading() as connection:
            revision = _revision(connection)
            rows = connection.execute(
                "SELECT key, value, version FROM entries WHERE key >= ? AND key < ? ORDER BY key",
                (raw, end_of_prefix(raw)),
            ).fetchall()
        entries = (Entry(key.decode(), value, version) for key, value, version in rows)
        return Snapshot(prefix, {entry.key: entry for entry in entries}, revision)

    def _await_revision_after(self, revision: int, deadline: float) -> None:
        pause = pauses(_FIRST_LOOK, _IDLE_LOOK, random.uniform)
        while self._end_overdue() == revision:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            with self._changed:
                self._changed.wait(min(left, next(pause)))

    def _require(self, connection: sqlite3.Connection, lease_id: int) -> None:
        if not connection.execute("SELECT 1 FROM leases WHERE id = ?", (lease_id,)).fetchone():
            raise LeaseEnded(f"store {self._file.path}: lease {lease_id} is over; take a new one")


def _entry(connection: sqlite3.Connection, key: str, raw: bytes) -> Entry | None:
    row = connection.execute("SELECT value, version FROM entries WHERE key = ?", (raw,)).fetchone()
    return Entry(key, *row) if row else None


def _compare(connection: sqlite3.Connection, key: str, raw: bytes, expect: int | None) -> None:
    if expect is None:
        return
    current = _entry(connection, key, raw)
    if expect != (current.version if current else 0):
        raise Conflict(key, expect, current)


def _end(connection: sqlite3.Connection, lease_id: int) -> None:
    connection.execute("DELETE FROM leases WHERE id = ?", (lease_id,))
    if connection.execute("DELETE FROM entries WHERE lease = ?", (lease_id,)).rowcount:
        _next_revision(connection)


def _revision(connection: sqlite3.Connection) -> int:
    (revision,) = connection.execute("SELECT revision FROM counter").fetchone()
    return int(revision)


def _next_revision(connection: sqlite3.Connection) -> int:
    connection.execute("UPDATE counter SET revision = revision + 1")
    return _revision(connection)
