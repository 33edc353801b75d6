"""What every store promises, tried on each of them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from subprocess import Popen

import pytest

from midflight.errors import Conflict, LeaseEnded, StoreError
from midflight.store import MAX_VALUE, Entry, Snapshot, Store
from tests.store.child import add_one

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


def watch_until(store: Store, prefix: str, wanted: Callable[[Snapshot], bool]) -> Snapshot:
    deadline = time.monotonic() + SOON
    view = store.watch(prefix)
    while not wanted(view):
        assert time.monotonic() < deadline, f"still {view}"
        view = store.watch(prefix, after=view, timeout=1)
    return view


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


# ----------------------------------------------------------------------------- watch


def test_a_watch_without_a_past_answers_at_once(store: Store) -> None:
    assert store.watch("jobs/", timeout=SOON).entries == {}
    entry = store.put("jobs/a", b"", expect=0)
    assert store.watch("jobs/", timeout=SOON).entries == {"jobs/a": entry}


def test_a_prefix_covers_what_begins_with_it_in_order(store: Store) -> None:
    for key in ("b", "a/b", "ab", "a", "B", "aä", "a%", "a\U0010ffff"):
        store.put(key, b"", expect=0)
    assert list(store.watch("a").entries) == ["a", "a%", "a/b", "ab", "aä", "a\U0010ffff"]
    assert list(store.watch("a%").entries) == ["a%"]
    assert len(store.watch("").entries) == 8


def test_a_watch_ends_unchanged_when_nothing_under_it_changes(store: Store) -> None:
    store.put("jobs/a", b"", expect=0)
    before = store.watch("jobs/")
    store.put("other/a", b"", expect=0)
    store.delete("other/a", expect=None)
    assert store.watch("jobs/", after=before, timeout=0.2) == before


@pytest.mark.parametrize("change", ["put", "rewrite", "delete"])
def test_a_waiting_watch_sees_what_another_does(
    store_url: str, opened: Callable[..., Store], change: str
) -> None:
    ours, theirs = opened(store_url), opened(store_url)
    theirs.put("jobs/a", b"same", expect=0)
    before = ours.watch("jobs/")
    with ThreadPoolExecutor(1) as thread:
        seen = thread.submit(ours.watch, "jobs/", after=before, timeout=2 * SOON)
        if change == "put":
            theirs.put("jobs/b", b"", expect=0)
        elif change == "rewrite":
            theirs.put("jobs/a", b"same", expect=None)
        else:
            theirs.delete("jobs/a", expect=None)
        after = seen.result(SOON)
    assert after != before
    assert after == theirs.watch("jobs/")


def test_what_happened_between_two_watches_is_not_lost(store: Store) -> None:
    store.put("jobs/a", b"1", expect=0)
    store.put("jobs/b", b"1", expect=0)
    before = store.watch("jobs/")
    store.delete("jobs/a", expect=None)
    after = store.watch("jobs/", after=before)
    assert list(after.entries) == ["jobs/b"]
    store.delete("jobs/b", expect=None)
    store.put("jobs/b", b"1", expect=0)
    assert store.watch("jobs/", after=after) != after


def test_a_watch_misses_nothing_that_another_process_writes(
    store: Store, store_url: str, child: Callable[..., Popen[str]]
) -> None:
    writer = child("increment", store_url, "count", "40")
    seen = [store.watch("count")]
    deadline = time.monotonic() + SOON
    while "count" not in seen[-1].entries or seen[-1].entries["count"].value != b"40":
        assert time.monotonic() < deadline
        seen.append(store.watch("count", after=seen[-1], timeout=5))
    numbers = [int(view.entries["count"].value) for view in seen if view.entries]
    assert numbers == sorted(numbers)
    assert [view.revision for view in seen] == sorted(view.revision for view in seen)
    assert writer.wait(SOON) == 0


def test_closing_wakes_whoever_waits(store: Store) -> None:
    before = store.watch("jobs/")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(store.watch, "jobs/", after=before, timeout=10 * SOON)
        store.close()
        with pytest.raises(StoreError, match="closed"):
            waiting.result(SOON)
    with pytest.raises(StoreError, match="closed"):
        store.get("jobs/a")


# ---------------------------------------------------------------------------- leases


def test_an_entry_ends_with_its_lease_and_watchers_are_told(store: Store) -> None:
    lease = store.lease(0.5)
    store.put("agents/a", b"", expect=0, lease=lease)
    store.put("agents/b", b"", expect=0)
    view = watch_until(store, "agents/", lambda view: "agents/a" not in view.entries)
    assert list(view.entries) == ["agents/b"]
    assert store.get("agents/a") is None
    with pytest.raises(LeaseEnded, match="take a new one"):
        lease.renew()


def test_a_renewed_lease_goes_on(store: Store) -> None:
    lease = store.lease(3)
    entry = store.put("agents/a", b"", expect=0, lease=lease)
    view = store.watch("agents/")
    end = time.monotonic() + 1.1 * lease.ttl
    while time.monotonic() < end:
        lease.renew()
        view = store.watch("agents/", after=view, timeout=0.2)
        assert view.entries == {"agents/a": entry}
    lease.release()


def test_a_released_lease_takes_its_entries_along_at_once(store: Store) -> None:
    lease = store.lease(600)
    assert lease.ttl >= 600
    store.put("agents/a", b"", expect=0, lease=lease)
    store.put("agents/b", b"", expect=0, lease=lease)
    before = store.watch("agents/")
    lease.release()
    assert store.watch("agents/", after=before, timeout=SOON).entries == {}
    lease.release()
    with pytest.raises(LeaseEnded):
        lease.renew()


def test_nothing_is_written_with_a_lease_that_is_over(store: Store) -> None:
    lease = store.lease(600)
    lease.release()
    with pytest.raises(LeaseEnded):
        store.put("agents/a", b"", expect=0, lease=lease)
    assert store.get("agents/a") is None
    store.put("agents/a", b"", expect=0)


def test_an_entry_belongs_to_the_lease_it_was_last_written_with(store: Store) -> None:
    first, second = store.lease(600), store.lease(600)
    for key in ("freed", "moved"):
        store.put(key, b"", expect=0, lease=first)
    freed = store.put("freed", b"", expect=None)
    moved = store.put("moved", b"", expect=None, lease=second)
    first.release()
    assert store.watch("").entries == {"freed": freed, "moved": moved}
    second.release()
    assert store.watch("").entries == {"freed": freed}


def test_a_lease_outlives_the_store_that_took_it(
    store_url: str, opened: Callable[..., Store]
) -> None:
    ours = opened(store_url)
    entry = ours.put("agents/a", b"", expect=0, lease=ours.lease(600))
    ours.close()
    assert opened(store_url).get("agents/a") == entry


def test_the_lease_of_a_killed_process_ends(
    store: Store, store_url: str, child: Callable[..., Popen[str]]
) -> None:
    holder = child("hold", store_url, "lock")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    watch_until(store, "lock", lambda view: not view.entries)
    store.put("lock", b"ours now", expect=0)


@pytest.mark.parametrize("ttl", [0, -1.0, float("nan"), float("inf")])
def test_a_lease_lasts_for_a_time(store: Store, ttl: float) -> None:
    with pytest.raises(StoreError, match="above 0 seconds"):
        store.lease(ttl)
