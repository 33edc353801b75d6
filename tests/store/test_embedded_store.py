"""What is special about the store in a file: the file, the clock, and other processes."""

import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import Popen

import pytest

from midflight.errors import LeaseEnded, StoreError, StoreUnavailable
from midflight.store import Store
from midflight.store.embedded import EmbeddedStore
from midflight.store.sqlite_file import SCHEMA, explain

pytestmark = pytest.mark.slow  # real processes or servers


class Clock:
    """A wall clock that stands still until it is moved."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def clocked(path: Path, clock: Clock) -> Iterator[EmbeddedStore]:
    with EmbeddedStore(str(path), clock=clock) as store:
        yield store


def assert_refused(path: Path, because: str) -> None:
    """Opening or reading fails with one line that names the file."""
    with pytest.raises(StoreError, match=because) as refusal:
        EmbeddedStore(str(path)).watch("")
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


# -------------------------------------------------------------------------- the file


def test_the_file_and_those_beside_it_are_for_this_user_alone(path: Path) -> None:
    with EmbeddedStore(str(path)) as store:
        store.put("secret", b"token", expect=0)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


def test_a_store_that_was_copied_with_a_wider_mode_is_closed_to_others(path: Path) -> None:
    EmbeddedStore(str(path)).close()
    path.chmod(0o644)
    EmbeddedStore(str(path)).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_was_written_is_there_after_closing(path: Path) -> None:
    with EmbeddedStore(str(path)) as store:
        entry = store.put("job", b"value", expect=0)
    with EmbeddedStore(str(path)) as store:
        assert store.get("job") == entry


def test_many_processes_may_be_the_first_to_open_it(
    path: Path, child: Callable[..., Popen[str]]
) -> None:
    children = [child("increment", str(path), "count", "2") for _ in range(6)]
    assert [process.wait(60) for process in children] == [0] * 6
    with EmbeddedStore(str(path)) as store:
        assert store.get("count").value == b"12"  # type: ignore[union-attr]


def test_many_threads_may_be_the_first_to_open_it(tmp_path: Path) -> None:
    start = threading.Barrier(4)

    def open_each(_: int) -> None:
        for number in range(20):
            start.wait(60)
            EmbeddedStore(str(tmp_path / f"{number}.db")).close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(open_each, range(4)))


def test_a_second_store_in_the_same_process_does_not_break_the_locks_of_the_first(
    path: Path, child: Callable[..., Popen[str]]
) -> None:
    with EmbeddedStore(str(path)) as first:
        first.put("job", b"1", expect=0)
        EmbeddedStore(str(path)).close()
        # If the locks were lost, this process would take itself for the last one, and tidy up.
        assert child("look", str(path), "job").wait(60) == 0
        assert path.with_name("store.db-wal").exists()
        entry = first.put("job", b"2", expect=None)
    with EmbeddedStore(str(path)) as again:
        assert again.get("job") == entry


# --------------------------------------------------------------- what may be in its place


def test_a_file_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"precious notes\n" * 1000)
    path.chmod(0o644)
    assert_refused(path, "damaged or foreign file")
    assert path.read_bytes() == b"precious notes\n" * 1000
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_database_of_something_else_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = path.read_bytes()
    assert_refused(path, "SQLite database of something else")
    assert path.read_bytes() == before


def test_a_store_of_a_newer_version_is_refused(path: Path) -> None:
    EmbeddedStore(str(path)).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    assert_refused(path, "newer Midflight.*upgrade")


def test_a_damaged_store_is_refused(path: Path) -> None:
    with EmbeddedStore(str(path)) as store:
        for number in range(50):
            store.put(f"job/{number}", b"x" * 1000, expect=0)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))
    assert_refused(path, "damaged")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert_refused(tmp_path / "nowhere" / "store.db", "No such file.*choose a file in a folder")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert_refused(tmp_path, "cannot be opened.*choose a file")


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "small.db")
    connection.execute("PRAGMA max_page_count = 2")
    connection.execute("CREATE TABLE notes (text)")
    with pytest.raises(sqlite3.Error) as full:
        connection.execute("INSERT INTO notes VALUES (?)", ("x" * 100_000,))
    connection.close()
    error = explain("/some/store.db", full.value)
    assert str(error) == "store /some/store.db: the disk is full; free some space and try again"


def test_a_store_that_somebody_keeps_locked_is_unavailable(path: Path) -> None:
    with EmbeddedStore(str(path), patience=0.1) as store:
        entry = store.put("job", b"1", expect=0)
        locker = sqlite3.connect(path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="keeps it locked"):
            store.put("job", b"2", expect=None)
        assert store.get("job") == entry
        locker.execute("ROLLBACK")
        locker.close()
        store.put("job", b"2", expect=entry.version)


# ------------------------------------------------------------------------- the clock


def test_a_lease_ends_when_its_time_is_up_and_not_before(
    clocked: EmbeddedStore, clock: Clock
) -> None:
    lease = clocked.lease(10)
    entry = clocked.put("agents/a", b"", expect=0, lease=lease)
    clock.now += 9.9
    assert clocked.get("agents/a") == entry
    lease.renew()
    clock.now += 9.9
    assert clocked.get("agents/a") == entry
    clock.now += 0.1
    assert clocked.get("agents/a") is None
    with pytest.raises(LeaseEnded):
        lease.renew()


def test_a_late_owner_keeps_a_lease_that_nobody_saw_ending(
    clocked: EmbeddedStore, clock: Clock
) -> None:
    lease = clocked.lease(10)
    entry = clocked.put("agents/a", b"", expect=0, lease=lease)
    clock.now += 3600
    lease.renew()
    assert clocked.get("agents/a") == entry


def test_all_who_look_agree_on_when_a_lease_ended(
    path: Path, clocked: EmbeddedStore, clock: Clock
) -> None:
    with EmbeddedStore(str(path), clock=clock) as other:
        clocked.put("agents/a", b"", expect=0, lease=clocked.lease(10))
        before = other.watch("agents/")
        clock.now += 10
        after = other.watch("agents/", after=before)
        assert after.entries == {}
        assert after.revision == before.revision + 1
        assert clocked.watch("agents/").revision == after.revision


def test_a_place_that_a_lease_has_left_is_free_at_once(
    clocked: EmbeddedStore, clock: Clock
) -> None:
    clocked.put("lock", b"theirs", expect=0, lease=clocked.lease(10))
    clock.now += 10
    clocked.put("lock", b"ours", expect=0)


def test_a_lease_is_known_in_other_processes(path: Path, opened: Callable[..., Store]) -> None:
    ours, theirs = opened(str(path)), opened(str(path))
    lease = ours.lease(600)
    theirs.put("agents/a", b"", expect=0, lease=lease)
    lease.release()
    assert theirs.get("agents/a") is None
