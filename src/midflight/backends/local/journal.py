"""The journal: one SQLite file that holds what the controller knows, and what happened.

`save` writes, in one transaction, the rows that differ between two states, so that the file holds
either the one or the other; when it returns, they are on the disk (WAL, synchronous=FULL). A file
that cannot be read is refused and left as it is: it is never deleted. It holds secrets, so it is
this user's alone (0600). It has one user, the server, which holds `server.lock`.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import midflight
from midflight.backends.place import Noted, differences
from midflight.controller.commands import Record
from midflight.controller.state import Cluster, Job, Node
from midflight.errors import ProtocolError, StoreError, StoreUnavailable
from midflight.protocol import codec

VERSION: Final = 1
EVENTS_PER_JOB: Final = 500

T = TypeVar("T", Job, Node)


@dataclass
class Writes:
    """How often this process has saved something, and how long that took."""

    count: int = 0
    failures: int = 0
    seconds: float = 0.0  # of both kinds

    @contextmanager
    def timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self.failures += 1
            raise
        finally:
            self.count += 1
            self.seconds += time.monotonic() - began


_TABLES = (
    "CREATE TABLE meta (version INTEGER NOT NULL, program TEXT NOT NULL)",
    "CREATE TABLE nodes (name TEXT PRIMARY KEY, json BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE jobs (key TEXT PRIMARY KEY, uid TEXT NOT NULL, json BLOB NOT NULL)",
    "CREATE TABLE events (id INTEGER PRIMARY KEY, key TEXT NOT NULL, at REAL NOT NULL,"
    " source TEXT NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL)",
    "CREATE INDEX events_of_a_job ON events (key, id)",
)


class Journal:
    """Used from one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writes = Writes()
        try:
            _make_private(path)
            self._connection = sqlite3.connect(path, timeout=2.0, isolation_level=None)
        except OSError as error:
            raise StoreError(
                f"the journal {path} cannot be made: {error.strerror}; free some space, change its "
                "permissions, or choose another MIDFLIGHT_HOME"
            ) from None
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    # --- reading ----------------------------------------------------------------------------

    def load(self) -> Cluster:
        with self._explained():
            nodes = self._connection.execute("SELECT name, json FROM nodes ORDER BY name")
            jobs = self._connection.execute("SELECT key, json FROM jobs ORDER BY rowid")
            return Cluster(
                {name: self._read(Node, name, data) for name, data in nodes},
                {key: self._read(Job, key, data) for key, data in jobs},
            )

    def events(self, key: str) -> list[Noted]:
        """Of one job, oldest first."""
        return self._events("WHERE key = ? ORDER BY id", (key,))

    def all_events(self) -> list[Noted]:
        return self._events("ORDER BY id", ())

    # --- writing ----------------------------------------------------------------------------

    def save(self, before: Cluster, after: Cluster, records: Sequence[Noted]) -> None:
        """Make the journal hold `after` instead of `before`, or raise and leave it as it was."""
        nodes = differences(before.nodes, after.nodes)
        jobs = differences(before.jobs, after.jobs)
        if not (nodes or jobs or records):
            return
        with self.writes.timed(), self._transaction() as connection:
            self._save_nodes(connection, nodes)
            self._save_jobs(connection, before, jobs)
            self._save_records(connection, records)

    def _save_nodes(self, connection: sqlite3.Connection, nodes: Mapping[str, Node | None]) -> None:
        for name, node in nodes.items():
            if node is None:
                connection.execute("DELETE FROM nodes WHERE name = ?", (name,))
            else:
                connection.execute(
                    "INSERT INTO nodes VALUES (?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET json = excluded.json",
                    (name, codec.dumps(node)),
                )

    def _save_jobs(
        self, connection: sqlite3.Connection, before: Cluster, jobs: Mapping[str, Job | None]
    ) -> None:
        for key, job in jobs.items():
            former = before.jobs.get(key)
            if former is not None and (job is None or job.uid != former.uid):
                connection.execute("DELETE FROM jobs WHERE key = ?", (key,))
                connection.execute("DELETE FROM events WHERE key = ?", (key,))
            if job is not None:
                connection.execute(
                    "INSERT INTO jobs VALUES (?, ?, ?)"
                    " ON CONFLICT (key) DO UPDATE SET json = excluded.json",
                    (key, job.uid, codec.dumps(job)),
                )

    def _save_records(self, connection: sqlite3.Connection, records: Sequence[Noted]) -> None:
        connection.executemany(
            "INSERT INTO events (key, at, source, kind, reason, message) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (r.key, at, r.source, r.kind, r.reason, r.message)
                for at, r in ((noted.at, noted.record) for noted in records)
            ],
        )
        for key in {noted.record.key for noted in records}:
            connection.execute(
                "DELETE FROM events WHERE key = ?1 AND id <= (SELECT id FROM events"
                " WHERE key = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
                (key, EVENTS_PER_JOB),
            )

    # --- the file ---------------------------------------------------------------------------

    def _prepare(self) -> None:
        with self._explained():
            # One user: no memory is shared through a file, which a full disk could tear away.
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            (mode,) = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(
                    f"the journal {self.path} is on a file system that cannot keep it safe"
                    f" (journal mode {mode!r}); choose a MIDFLIGHT_HOME on a local disk"
                )
            self._connection.execute("PRAGMA synchronous = FULL")
            (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise _damaged(self.path, verdict)
            (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables:
            self._check_version()
        else:
            self._make_tables()

    def _make_tables(self) -> None:
        with self._transaction() as connection:
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES (?, ?)", (VERSION, midflight.__version__))

    def _check_version(self) -> None:
        with self._explained():
            try:
                found = self._connection.execute("SELECT version, program FROM meta").fetchone()
            except sqlite3.OperationalError as error:
                raise _damaged(self.path, f"it is a database of something else: {error}") from None
        if found is None:
            raise _damaged(self.path, "it does not say its version")
        version, program = found
        if version > VERSION:
            raise StoreError(
                f"the journal {self.path} was written by a newer Midflight ({program}, format"
                f" {version}), this is {midflight.__version__} (format {VERSION}); use that one,"
                " or another MIDFLIGHT_HOME"
            )

    def _read(self, kind: type[T], name: str, data: bytes) -> T:
        try:
            return codec.decode(kind, codec.loads(data))
        except ProtocolError as error:
            raise _damaged(self.path, f"{kind.__name__.lower()} {name}: {error}") from None

    def _events(self, where: str, values: tuple[str, ...]) -> list[Noted]:
        columns = "at, key, source, kind, reason, message"
        with self._explained():
            rows = self._connection.execute(f"SELECT {columns} FROM events {where}", values)
            return [Noted(at, Record(*rest)) for at, *rest in rows]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise explain(self.path, error) from error


def explain(path: Path, error: sqlite3.Error) -> StoreError:
    """The one line that a user gets to see."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    match code:
        case sqlite3.SQLITE_FULL:
            return StoreUnavailable(
                f"the disk with the journal {path} is full: nothing was changed;"
                " free some space and try again"
            )
        case sqlite3.SQLITE_IOERR:
            return StoreUnavailable(
                f"the journal {path} cannot be written ({error}): nothing was changed;"
                " check whether its disk is full or broken, and try again"
            )
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return _damaged(path, str(error))
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreUnavailable(
                f"the journal {path} is locked by another program; close what has it open"
            )
        case _:
            return StoreError(
                f"the journal {path} cannot be used: {error}; check its permissions and its disk"
            )


def _damaged(path: Path, what: str) -> StoreError:
    line = " ".join(what.split())
    return StoreError(
        f"the journal {path} is damaged ({line}); it is left as it is: put a copy back, or move it"
        " away to begin without jobs"
    )


def _make_private(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        path.chmod(0o600)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
