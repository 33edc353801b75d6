"""What every store promises, tried on each of them: watches and leases.

Single keys and races are in test_conformance.py.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from subprocess import Popen

import pytest

from midflight.errors import LeaseEnded, StoreError
from midflight.store import Snapshot, Store

pytestmark = pytest.mark.slow  # real processes or servers


SOON = 30.0  # a deadline that only a broken store misses


def watch_until(store: Store, prefix: str, wanted: Callable[[Snapshot], bool]) -> Snapshot:
    deadline = time.monotonic() + SOON
    view = store.watch(prefix)
    while not wanted(view):
        assert time.monotonic() < deadline, f"still {view}"
        view = store.watch(prefix, after=view, timeout=1)
    return view


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
