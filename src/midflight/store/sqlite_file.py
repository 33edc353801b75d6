"""One SQLite file that several processes write: how it is opened, locked, and what goes wrong.

Durable means WAL with synchronous=FULL: a commit is on the disk when it returns. The file is this
user's alone (mode 0600; SQLite gives the files beside it the same). Every error of SQLite leaves
here as one line that names the file and what to do; nothing of SQLite's own gets out.
"""

import enum
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

from midflight.backoff import pauses
from midflight.errors import StoreError, StoreUnavailable

SCHEMA: Final = 1
APPLICATION: Final = 0x4D_46_4C_54  # "MFLT", marks the file as ours


class Code(enum.IntEnum):
    """SQLite's own, which `sqlite3` has since Python 3.11."""

    ERROR = 1
    PERM = 3
    BUSY = 5
    LOCKED = 6
    READONLY = 8
    CORRUPT = 11
    FULL = 13
    CANTOPEN = 14
    NOTADB = 26


_TABLES = (
    "CREATE TABLE entries"
    " (key BLOB PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, lease INTEGER)",
    "CREATE INDEX entries_by_lease ON entries (lease) WHERE lease IS NOT NULL",
    # AUTOINCREMENT: the id of a lease that ended is never given out again
    "CREATE TABLE leases"
    " (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl REAL NOT NULL, expires REAL NOT NULL)",
    "CREATE TABLE counter (revision INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (1)",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA}",
)

# A process that closes any descriptor of a file loses its locks on it (POSIX), those of another
# connection included; so nobody connects while the file is being made.
_making_file = threading.Lock()


def explain(path: str, error: sqlite3.Error) -> StoreError:
    """The one line a user gets to see."""
    guessed = Code.BUSY if "is locked" in str(error) else Code.ERROR
    code = getattr(error, "sqlite_errorcode", guessed) & 0xFF
    match code:
        case Code.FULL:
            return StoreError(f"store {path}: the disk is full; free some space and try again")
        case Code.NOTADB | Code.CORRUPT:
            return StoreError(
                f"store {path}: wanted a Midflight store, found a damaged or foreign file"
                f" ({error}); move it away, or choose another path"
            )
        case Code.BUSY | Code.LOCKED:
            return StoreUnavailable(
                f"store {path}: another process keeps it locked; look for one that is stopped"
            )
        case Code.CANTOPEN | Code.READONLY | Code.PERM:
            return StoreError(
                f"store {path}: cannot be opened for writing ({error});"
                " choose a file in a folder that exists and is yours"
            )
        case _:
            return StoreError(f"store {path}: {error}; check the disk it is on")


class SqliteFile:
    """A connection that threads take turns with, one transaction at a time."""

    def __init__(self, path: str, patience: float) -> None:
        self.path = os.path.abspath(path)
        self._patience = patience
        self._turn = threading.Lock()
        self._open = True
        try:
            with _making_file:
                _make_private(self.path)
                self._connection = sqlite3.connect(
                    self.path, timeout=patience, isolation_level=None, check_same_thread=False
                )
        except sqlite3.Error as error:
            raise explain(self.path, error) from error
        except OSError as error:
            raise StoreError(
                f"store {self.path}: cannot be made ({error.strerror});"
                " choose a file in a folder that exists and is yours"
            ) from error
        try:
            self._prepare()
        except StoreError:
            self._connection.close()
            raise

    @contextmanager
    def transaction(self, kind: Literal["DEFERRED", "IMMEDIATE"]) -> Iterator[sqlite3.Connection]:
        """DEFERRED reads one consistent state; IMMEDIATE is alone in writing. All or nothing."""
        with self._my_turn() as connection:
            connection.execute(f"BEGIN {kind}")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def close(self) -> None:
        with self._turn:
            self._open = False
            self._connection.close()

    @contextmanager
    def _my_turn(self) -> Iterator[sqlite3.Connection]:
        if not self._turn.acquire(timeout=2 * self._patience):
            raise StoreUnavailable(f"store {self.path}: other threads keep it busy")
        try:
            if not self._open:
                raise StoreError(f"store {self.path}: is closed")
            yield self._connection
        except sqlite3.Error as error:
            raise explain(self.path, error) from error
        finally:
            self._turn.release()

    def _prepare(self) -> None:
        with self.transaction("DEFERRED") as connection:
            fresh = self._is_fresh(connection)
        _keep_private(self.path)
        self._write_ahead()
        if fresh:
            with self.transaction("IMMEDIATE") as connection:
                if self._is_fresh(connection):  # else another process was faster
                    for statement in _TABLES:
                        connection.execute(statement)

    def _write_ahead(self) -> None:
        deadline = time.monotonic() + self._patience
        for pause in pauses(0.005, 0.1, random.uniform):
            try:
                with self._my_turn() as connection:
                    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                    connection.execute("PRAGMA synchronous = FULL")
                break
            except StoreUnavailable:  # SQLite does not wait here when two switch at once
                if time.monotonic() >= deadline:
                    raise
                time.sleep(pause)
        if mode != "wal":
            raise StoreError(
                f"store {self.path}: its file system cannot share memory between processes"
                f" (journal mode {mode!r}); choose a local disk"
            )

    def _is_fresh(self, connection: sqlite3.Connection) -> bool:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == 0 and schema == 0 and tables == 0:
            return True
        if application != APPLICATION:
            raise StoreError(
                f"store {self.path}: wanted a Midflight store, found a SQLite database of something"
                " else; choose another path"
            )
        if schema > SCHEMA:
            raise StoreError(
                f"store {self.path}: written by a newer Midflight (schema {schema}, this one knows"
                f" {SCHEMA}); upgrade this one, or choose another path"
            )
        return False


def _make_private(path: str) -> None:
    """Makes the file, lastingly, if it is not there."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_private(path: str) -> None:
    """Keeps others out of a store that was copied here with a wider mode."""
    status = os.stat(path)
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        os.chmod(path, 0o600)
