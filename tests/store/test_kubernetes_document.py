"""What the store on Kubernetes decides without one: names, receipts, and when a lease is over."""

import math

import pytest

from midflight.errors import StoreError
from midflight.store.kubernetes import Sightings
from midflight.store.kubernetes_document import (
    RECEIPTS,
    Document,
    Term,
    pack,
    read,
    slot,
    written,
)
from tests.store.test_conformance import ODD_KEYS

# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [*ODD_KEYS, ".", "..", "...x", "_index", "_-", "a_b", "a/b"])
def test_every_key_is_spelt_as_kubernetes_wants_it(key: str) -> None:
    name = slot(key)
    assert 0 < len(name) <= 253
    assert not name.startswith(".")
    assert all(sign.isascii() and (sign.isalnum() or sign in "-._") for sign in name)
    assert name != "_index"


def test_no_two_keys_are_spelt_the_same() -> None:
    keys = {*ODD_KEYS, ".", "_2E", "..", "_2E.", "a/b", "a_2Fb", "k" * 1023, "_-", slot("k" * 1024)}
    assert len({slot(key) for key in keys}) == len(keys)


# --- what is written is read ----------------------------------------------------------------------


def test_a_document_comes_back_as_it_was_written() -> None:
    document = Document().put("jobs/a", pack(b"value"), 0, 0).grant(2.5)
    document = document.put("agent", pack(b""), 0, 2).renew(2).with_receipt("mark")
    config_map = {"metadata": {"name": "x"}, "data": {"theirs": "stays"}}
    made = written(config_map, document, "here")
    assert read(made, "here") == document
    assert made["metadata"] == {"name": "x"}
    assert made["data"]["theirs"] == "stays"


def test_a_later_format_is_not_guessed_at() -> None:
    with pytest.raises(StoreError, match=r"^here: wanted format 1, found 2; finish the job with"):
        read({"data": {"_index": '{"format": 2}'}}, "here")


# --- receipts -------------------------------------------------------------------------------------


def test_only_the_last_receipts_are_kept() -> None:
    document = Document()
    for number in range(RECEIPTS + 5):
        document = document.put("key", b"", None, 0).with_receipt(f"mark-{number}")
    assert len(document.receipts) == RECEIPTS
    assert "mark-4" not in document.receipts
    assert document.receipts["mark-5"] == 6


def test_a_receipt_that_may_have_been_dropped_is_not_taken_for_one_that_never_was() -> None:
    document = Document()
    for number in range(RECEIPTS):
        document = document.put("key", b"", None, 0).with_receipt(f"mark-{number}")
    assert not document.has_forgotten(base=0)
    document = document.put("key", b"", None, 0).with_receipt("one more")
    assert document.has_forgotten(base=0)
    assert not document.has_forgotten(base=1)
    assert Document(revision=3).has_forgotten(base=4)  # it was emptied meanwhile


# --- leases ---------------------------------------------------------------------------------------


def test_a_lease_is_over_when_its_count_has_stood_still_for_all_of_its_time() -> None:
    sightings = Sightings()
    assert sightings.overdue({1: Term(5.0, 0)}, now=100.0) == []
    assert sightings.next_end({1: Term(5.0, 0)}) == 105.0
    assert sightings.overdue({1: Term(5.0, 0)}, now=104.9) == []
    assert sightings.overdue({1: Term(5.0, 1)}, now=104.95) == []  # renewed
    assert sightings.overdue({1: Term(5.0, 1)}, now=105.0) == []
    assert sightings.overdue({1: Term(5.0, 1)}, now=109.95) == [1]


def test_whoever_begins_to_look_waits_for_all_of_its_time() -> None:
    assert Sightings().overdue({1: Term(5.0, 7)}, now=1e9) == []
    assert Sightings().next_end({}) == math.inf


def test_time_without_an_api_server_does_not_count() -> None:
    sightings = Sightings()
    sightings.overdue({1: Term(5.0, 0)}, now=100.0)
    sightings.begin_anew()
    assert sightings.overdue({1: Term(5.0, 0)}, now=200.0) == []
    assert sightings.overdue({1: Term(5.0, 0)}, now=205.0) == [1]
