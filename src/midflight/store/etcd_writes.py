"""Writes to etcd that happen once, even when the answer to one is lost and it is sent again.

Each write leaves a receipt in the same transaction: a small key whose version counts the writes
made with it, and whose value says whether the comparison held. A copy that comes second finds the
count moved on, changes nothing, and reads from the receipt what became of the first. Receipts hang
on a lease of their own, so those of a killed process vanish by themselves.
"""

import secrets
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass

from midflight.errors import StoreUnavailable
from midflight.store.etcd_gateway import Gateway
from midflight.store.http_client import Json

_HELD, _FAILED = b"held", b"failed"
_FRESH = 120.0  # seconds for which a receipt is used again
_MARGIN = 300  # seconds it outlives that, on top of twice the patience


def text(raw: bytes) -> str:
    """Bytes as the gateway wants them."""
    return b64encode(raw).decode()


@dataclass(frozen=True)
class Outcome:
    held: bool  # the comparison; if not, nothing was written
    version: int  # the write's, if it held
    current: Json | None  # the entry there is, as etcd tells it, if it did not


@dataclass
class _Receipt:
    key: bytes
    lease: int
    stale_at: float  # by the wall clock, which goes on while a laptop sleeps
    writes: int = 0


class Writes:
    def __init__(self, gateway: Gateway, folder: bytes) -> None:
        self._gateway = gateway
        self._folder = folder
        self._idle: list[_Receipt] = []  # one per thread that writes at the same time

    def commit(self, key: bytes, operation: Json, expect: int | None) -> Outcome:
        """Does `operation` if the version of `key` is `expect`; raises what the gateway raises.

        After an error the outcome is unknown, and the receipt is not used again.
        """
        receipt = self._take()
        answer = self._gateway.call("/v3/kv/txn", _transaction(receipt, key, operation, expect))
        outcome = self._outcome(receipt, answer)
        receipt.writes += 1
        self._idle.append(receipt)
        return outcome

    def _take(self) -> _Receipt:
        while self._idle:
            receipt = self._idle.pop()
            if time.time() < receipt.stale_at:
                return receipt
        lifetime = int(_FRESH + _MARGIN + 2 * self._gateway.patience)
        granted = self._gateway.call("/v3/lease/grant", {"TTL": str(lifetime)})
        key = self._folder + secrets.token_hex(16).encode()
        return _Receipt(key, int(granted["ID"]), time.time() + _FRESH)

    def _outcome(self, receipt: _Receipt, answer: Json) -> Outcome:
        if answer.get("succeeded"):
            inner = answer["responses"][0]["response_txn"]
            if inner.get("succeeded"):
                return Outcome(True, int(answer["header"]["revision"]), None)
            return Outcome(False, 0, _first(inner["responses"][0]))
        entry, seen = (_first(response) for response in answer["responses"])
        written = int(seen["version"]) if seen is not None else None
        if seen is None or written != receipt.writes + 1:
            raise StoreUnavailable(f"{self._gateway.address}: {_why_unknown(receipt, written)}")
        held = b64decode(seen["value"]) == _HELD
        return Outcome(held, int(seen["mod_revision"]), None if held else entry)


def _transaction(receipt: _Receipt, key: bytes, operation: Json, expect: int | None) -> Json:
    name = text(receipt.key)
    read_key = {"request_range": {"key": text(key)}}

    def leave(result: bytes) -> Json:
        put = {"key": name, "value": text(result), "lease": str(receipt.lease)}
        return {"request_put": put}

    compare_and_set = {
        "compare": [] if expect is None else [_equal(text(key), "mod_revision", expect)],
        "success": [operation, leave(_HELD)],
        "failure": [read_key, leave(_FAILED)],
    }
    return {
        "compare": [_equal(name, "version", receipt.writes)],
        "success": [{"request_txn": compare_and_set}],
        "failure": [read_key, {"request_range": {"key": name}}],
    }


def _why_unknown(receipt: _Receipt, written: int | None) -> str:
    if written is not None and written < receipt.writes:
        return (
            "lost a write that it had confirmed; the releases 3.5.0 to 3.5.2 do so when they are"
            " killed: use another"
        )
    return (
        "the receipt of a write expired before it was answered;"
        " read the key to know whether it happened"
    )


def _equal(key: str, what: str, number: int) -> Json:
    target = {"mod_revision": "MOD", "version": "VERSION"}[what]
    return {"key": key, "target": target, "result": "EQUAL", what: str(number)}


def _first(response: Json) -> Json | None:
    found: list[Json] = response["response_range"].get("kvs", [])
    return found[0] if found else None
