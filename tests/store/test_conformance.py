"""What every store promises, tried on each of them: single keys, and many who want the same one.

Watches and leases are in test_conformance_watch.py.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from subprocess import Popen

import pytest

from midflight.errors import Conflict, StoreError
from midflight.store import MAX_VALUE, Entry, Store
from tests.store.child import add_one

pytestmark = pytest.mark.slow  # real processes or servers


SOON = 30.0  # a deadline that only a broken store misses

ODD_KEYS = [
    "/",
    "//leading/slashes/",
    " spaces and\ttabs\n",
    "100%_*?[x]",
    "quo'te\"s`;--",
    "nul\0nul",
    "emoji 🛫 in flight",
    "\U0010ffff",
    "\x7f",
    "ä",
    "a\u0308",  # looks like the one above, and is another key
    "k" * 1024,
]


# ------------------------------------------------------------------ get, put, delete


def test_what_was_put_is_read_back(store: Store) -> None:
    assert store.get("job") is None
    entry = store.put("job", b"\x00\xffbytes", expect=0)
    assert entry == Entry("job", b"\x00\xffbytes", entry.version)
    assert store.get("job") == entry


def test_an_empty_value_is_a_value(store: Store) -> None:
    entry = store.put("job", b"", expect=0)
    assert store.get("job") == entry
    assert store.watch("job").entries == {"job": entry}


def test_a_key_that_is_there_is_not_created_again(store: Store) -> None:
    entry = store.put("job", b"first", expect=0)
    with pytest.raises(Conflict) as refusal:
        store.put("job", b"second", expect=0)
    assert refusal.value.current == entry == store.get("job")


def test_a_key_that_is_not_there_has_no_version_to_match(store: Store) -> None:
    with pytest.raises(Conflict) as refusal:
        store.put("job", b"value", expect=7)
    assert refusal.value.current is None


def test_only_the_newest_version_may_be_replaced(store: Store) -> None:
    first = store.put("job", b"1", expect=0)
    second = store.put("job", b"2", expect=first.version)
    with pytest.raises(Conflict) as refusal:
        store.put("job", b"3", expect=first.version)
    assert refusal.value.current == second == store.get("job")


def test_expecting_nothing_writes_whatever_is_there(store: Store) -> None:
    store.put("job", b"1", expect=None)
    store.put("job", b"2", expect=None)
    assert store.get("job").value == b"2"  # type: ignore[union-attr]


def test_a_deleted_key_is_gone_and_its_version_never_comes_back(store: Store) -> None:
    first = store.put("job", b"same", expect=0)
    store.delete("job", expect=first.version)
    assert store.get("job") is None
    again = store.put("job", b"same", expect=0)
    assert again.version > first.version
    with pytest.raises(Conflict):
        store.delete("job", expect=first.version)
    store.delete("job", expect=None)
    store.delete("job", expect=None)
    assert store.get("job") is None


def test_versions_order_the_writes_of_the_whole_store(store: Store) -> None:
    versions = [store.put(f"key/{n % 3}", b"", expect=None).version for n in range(9)]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys_are_ordinary_keys(store: Store, key: str) -> None:
    entry = store.put(key, key.encode(), expect=0)
    assert store.get(key) == entry
    assert store.watch(key).entries == {key: entry}
    assert store.watch("").entries == {key: entry}
    store.delete(key, expect=entry.version)
    assert store.get(key) is None


@pytest.mark.parametrize("key", ["", "\ud800", "k" * 1025])
def test_keys_that_cannot_be_are_refused_in_one_line(store: Store, key: str) -> None:
    with pytest.raises(StoreError, match=r"^store key .*wanted"):
        store.put(key, b"value", expect=None)
    assert store.watch("").entries == {}


def test_large_values_come_back_whole_and_larger_ones_are_refused(store: Store) -> None:
    for number in range(6):
        store.put(f"large/{number}", bytes([number]) * MAX_VALUE, expect=0)
    view = store.watch("large/")
    assert [entry.value[0] for entry in view.entries.values()] == [0, 1, 2, 3, 4, 5]
    assert {len(entry.value) for entry in view.entries.values()} == {MAX_VALUE}
    with pytest.raises(StoreError, match="split it"):
        store.put("larger", b"x" * (MAX_VALUE + 1), expect=0)


# ----------------------------------------------------------------------------- races


def test_of_many_threads_one_creates_the_key(store: Store) -> None:
    start = threading.Barrier(6)

    def create(number: int) -> bool:
        start.wait(SOON)
        try:
            store.put("leader", str(number).encode(), expect=0)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        won = list(threads.map(create, range(6)))
    assert won.count(True) == 1
    assert store.get("leader").value == str(won.index(True)).encode()  # type: ignore[union-attr]


def test_threads_that_count_together_lose_no_count(store: Store) -> None:
    def count(_: int) -> None:
        for _ in range(8):
            add_one(store, "count")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert store.get("count").value == b"32"  # type: ignore[union-attr]


def test_processes_that_count_together_lose_no_count(
    store: Store, store_url: str, child: Callable[..., Popen[str]]
) -> None:
    children = [child("increment", store_url, "count", "15") for _ in range(3)]
    assert [process.wait(SOON) for process in children] == [0, 0, 0]
    assert store.get("count").value == b"45"  # type: ignore[union-attr]


def test_a_killed_writer_loses_nothing_that_was_acknowledged(
    store_url: str, opened: Callable[..., Store], child: Callable[..., Popen[str]]
) -> None:
    writer = child("write", store_url, "entry/")
    assert writer.stdout is not None
    acknowledged = [writer.stdout.readline() for _ in range(20)]
    writer.kill()
    acknowledged += writer.stdout.readlines()
    entries = opened(store_url).watch("entry/").entries
    written = {f"entry/{int(number)}": number.strip().encode() for number in acknowledged}
    assert len(written) >= 20
    # one more may have been written without a chance to say so
    assert len(entries) - len(written) in (0, 1)
    assert {key: entries[key].value for key in written} == written
