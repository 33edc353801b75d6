"""The state in a real store: taken up again, fenced, and not confused by a write of one's own."""

import base64
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from midflight.coordinator.core.state import State, initial
from midflight.coordinator.saved_state import Saving, forget
from midflight.errors import Conflict, SealBroken, StoreError, StoreUnavailable
from midflight.protocol.job import JobSpec
from midflight.store import Store, open_store
from midflight.store.interface import Entry, Lease

SECRET = b"the token of this run"
STATE = initial(JobSpec("job", ("sh",), 2, 1, 4), 10.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db") as opened:
        yield opened


class LossyStore:
    """A store whose answers to writes get lost."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.losses = 0
        self.refusals = 0  # writes that do not even arrive

    def get(self, key: str) -> Entry | None:
        return self._store.get(key)

    def put(
        self, key: str, value: bytes, *, expect: int | None, lease: Lease | None = None
    ) -> Entry:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("no route")
        entry = self._store.put(key, value, expect=expect, lease=lease)
        if self.losses:
            self.losses -= 1
            raise StoreUnavailable("no answer")
        return entry


def wanted(state: State, number: int) -> State:
    return replace(state, wanted=number)


def test_what_was_saved_is_taken_up(store: Store) -> None:
    Saving(store, "job", SECRET).save(wanted(STATE, 3), 20.0)
    loaded = Saving(store, "job", SECRET).load(50.0)
    assert loaded is not None
    assert loaded.wanted == 3 and loaded.spec == STATE.spec
    assert Saving(store, "another", SECRET).load(50.0) is None


def test_of_two_coordinators_only_the_later_can_save(store: Store) -> None:
    first = Saving(store, "job", SECRET)
    first.save(STATE, 20.0)
    second = Saving(store, "job", SECRET)
    assert second.load(21.0) is not None
    second.save(wanted(STATE, 3), 22.0)
    with pytest.raises(Conflict):
        first.save(wanted(STATE, 4), 23.0)
    with pytest.raises(Conflict):
        first.save(wanted(STATE, 4), 24.0)


def test_a_coordinator_that_did_not_look_first_cannot_overwrite(store: Store) -> None:
    Saving(store, "job", SECRET).save(STATE, 20.0)
    with pytest.raises(Conflict):
        Saving(store, "job", SECRET).save(STATE, 20.0)


def test_a_write_that_arrived_without_an_answer_is_not_taken_for_a_rival_s(store: Store) -> None:
    lossy = LossyStore(store)
    saving = Saving(lossy, "job", SECRET)  # type: ignore[arg-type]
    lossy.losses = 1
    with pytest.raises(StoreUnavailable):
        saving.save(STATE, 20.0)
    saving.save(wanted(STATE, 3), 21.0)
    saving.save(wanted(STATE, 4), 22.0)
    loaded = Saving(store, "job", SECRET).load(23.0)
    assert loaded is not None and loaded.wanted == 4


def test_nor_is_it_after_further_writes_that_did_not_arrive(store: Store) -> None:
    lossy = LossyStore(store)
    saving = Saving(lossy, "job", SECRET)  # type: ignore[arg-type]
    lossy.losses = 1
    with pytest.raises(StoreUnavailable):
        saving.save(STATE, 20.0)
    for number in (3, 4):
        lossy.refusals = 1
        with pytest.raises(StoreUnavailable):
            saving.save(wanted(STATE, number), 21.0)
    saving.save(wanted(STATE, 5), 22.0)
    loaded = Saving(store, "job", SECRET).load(23.0)
    assert loaded is not None and loaded.wanted == 5


def test_a_long_outage_of_the_store_takes_no_memory(store: Store) -> None:
    lossy = LossyStore(store)
    saving = Saving(lossy, "job", SECRET)  # type: ignore[arg-type]
    lossy.refusals = 1010
    tracemalloc.start()
    try:
        before = 0
        for number in range(1010):
            with pytest.raises(StoreUnavailable):
                saving.save(wanted(STATE, number), 21.0)
            if number == 9:
                before = tracemalloc.get_traced_memory()[0]
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000


def test_a_rival_that_writes_the_same_is_a_rival_all_the_same(store: Store) -> None:
    lossy = LossyStore(store)
    first = Saving(lossy, "job", SECRET)  # type: ignore[arg-type]
    first.save(STATE, 20.0)
    second = Saving(store, "job", SECRET)
    assert second.load(21.0) is not None
    lossy.refusals = 1
    with pytest.raises(StoreUnavailable):
        first.save(wanted(STATE, 3), 22.0)
    second.save(wanted(STATE, 3), 22.0)
    with pytest.raises(Conflict):
        first.save(wanted(STATE, 3), 22.0)


def test_what_somebody_else_has_put_there_is_a_conflict_whatever_it_is(store: Store) -> None:
    saving = Saving(store, "job", SECRET)
    store.put("jobs/job/state", b"not even JSON", expect=0)
    with pytest.raises(Conflict):
        saving.save(STATE, 20.0)


def test_a_state_of_another_format_is_refused_with_what_to_do(store: Store) -> None:
    store.put("jobs/job/state", b'{"format": 99}', expect=0)
    with pytest.raises(StoreError, match="finish the job with the release that started it"):
        Saving(store, "job", SECRET).load(1.0)


def test_a_forgotten_job_begins_anew(store: Store) -> None:
    saving = Saving(store, "job", SECRET)
    saving.save(STATE, 20.0)
    forget(store, "job")
    assert Saving(store, "job", SECRET).load(30.0) is None


def test_a_state_that_was_changed_is_refused(store: Store) -> None:
    Saving(store, "job", SECRET).save(STATE, 20.0)
    entry = store.get("jobs/job/state")
    assert entry is not None
    head, _, body = entry.value.partition(b"\n")
    plain = zlib.decompress(base64.b64decode(body))
    changed = plain.replace(b'"command":["sh"]', b'"command":["nc"]')
    assert changed != plain
    evil = head + b"\n" + base64.b64encode(zlib.compress(changed))
    store.put("jobs/job/state", evil, expect=None)
    with pytest.raises(SealBroken, match="somebody has changed it, or it is another run's"):
        Saving(store, "job", SECRET).load(30.0)


def test_a_state_of_another_run_is_refused(store: Store) -> None:
    Saving(store, "job", SECRET).save(STATE, 20.0)
    entry = store.get("jobs/job/state")
    assert entry is not None
    store.put("jobs/other/state", entry.value, expect=None)
    with pytest.raises(SealBroken, match="delete jobs/other/state from the store to begin anew"):
        Saving(store, "other", SECRET).load(30.0)
