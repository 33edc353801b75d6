"""What a store keeps in its ConfigMap, as a value: entries, leases, receipts, one counter.

Pure: each change makes another Document. Values lie compressed under `binaryData`, each under its
key (spelt so that Kubernetes takes it); `data` has an index with versions, leases and receipts.
A receipt is the mark of one of the last writes: a writer that lost an answer looks for its own.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from midflight.errors import Conflict, LeaseEnded, StoreError
from midflight.store.interface import Entry, Snapshot

FORMAT = 1
INDEX = "_index"  # no key is spelt so
ROOM = 1024 * 1024  # bytes in a ConfigMap, names not counted
RECEIPTS = 32  # so many are kept
_LONGEST_NAME = 253

Json = dict[str, Any]


@dataclass(frozen=True)
class Held:
    """An entry, as it lies there."""

    packed: bytes
    version: int
    lease: int  # 0: none


@dataclass(frozen=True)
class Term:
    """A lease. Time is not in it: whoever looks measures how long the count stands still."""

    ttl: float
    renewals: int


@dataclass(frozen=True)
class Document:
    revision: int = 0  # one more with each write; versions come from it
    entries: Mapping[str, Held] = field(default_factory=dict)
    leases: Mapping[int, Term] = field(default_factory=dict)
    receipts: Mapping[str, int] = field(default_factory=dict)  # the mark of a write, its version

    # --- looking ------------------------------------------------------------------------------

    def entry(self, key: str) -> Entry | None:
        held = self.entries.get(key)
        return None if held is None else Entry(key, unpack(held.packed), held.version)

    def snapshot(self, prefix: str) -> Snapshot:
        keys = sorted((key for key in self.entries if key.startswith(prefix)), key=str.encode)
        found = (self.entry(key) for key in keys)
        return Snapshot(prefix, {entry.key: entry for entry in found if entry}, self.revision)

    def has_forgotten(self, base: int) -> bool:
        """Whether a write made on revision `base` may have left a receipt that is gone by now."""
        oldest = min(self.receipts.values(), default=0)
        full = len(self.receipts) >= RECEIPTS
        return self.revision < base or (full and oldest > base + 1)

    # --- changing -----------------------------------------------------------------------------

    def put(self, key: str, packed: bytes, expect: int | None, lease: int) -> "Document":
        self._compare(key, expect)
        if lease:
            self._require(lease)
        entries = {**self.entries, key: Held(packed, self.revision + 1, lease)}
        return replace(self, revision=self.revision + 1, entries=entries)

    def delete(self, key: str, expect: int | None) -> "Document":
        self._compare(key, expect)
        if key not in self.entries:
            return self
        entries = {name: held for name, held in self.entries.items() if name != key}
        return replace(self, revision=self.revision + 1, entries=entries)

    def grant(self, ttl: float) -> "Document":
        """The new lease is known by the revision that this makes."""
        leases = {**self.leases, self.revision + 1: Term(ttl, 0)}
        return replace(self, revision=self.revision + 1, leases=leases)

    def renew(self, lease: int) -> "Document":
        term = self._require(lease)
        leases = {**self.leases, lease: replace(term, renewals=term.renewals + 1)}
        return replace(self, revision=self.revision + 1, leases=leases)

    def end(self, *ended: int) -> "Document":
        """Without these leases, and what was bound to them; the same if none was there."""
        if not any(lease in self.leases for lease in ended):
            return self
        return replace(
            self,
            revision=self.revision + 1,
            leases={lease: term for lease, term in self.leases.items() if lease not in ended},
            entries={key: held for key, held in self.entries.items() if held.lease not in ended},
        )

    def with_receipt(self, mark: str) -> "Document":
        newest = list(self.receipts.items())[1 - RECEIPTS :]
        return replace(self, receipts={**dict(newest), mark: self.revision})

    def _compare(self, key: str, expect: int | None) -> None:
        held = self.entries.get(key)
        if expect is not None and expect != (held.version if held else 0):
            raise Conflict(key, expect, self.entry(key))

    def _require(self, lease: int) -> Term:
        if lease not in self.leases:
            raise LeaseEnded(f"lease {lease} is over; take a new one")
        return self.leases[lease]


# --- in the ConfigMap -----------------------------------------------------------------------------


def pack(value: bytes) -> bytes:
    return zlib.compress(value)


def unpack(packed: bytes) -> bytes:
    return zlib.decompress(packed)


def read(config_map: Json, where: object) -> Document:
    """An untouched ConfigMap is an empty store."""
    text = (config_map.get("data") or {}).get(INDEX)
    if text is None:
        return Document()
    try:
        index = json.loads(text)
        if index["format"] != FORMAT:
            raise StoreError(
                f"{where}: wanted format {FORMAT}, found {index['format']}; finish the job with "
                "the release that started it"
            )
        values = config_map.get("binaryData") or {}
        return Document(
            revision=int(index["revision"]),
            entries={
                key: Held(b64decode(values[slot(key)]), int(version), int(lease))
                for key, (version, lease) in index["entries"].items()
            },
            leases={int(name): Term(ttl, count) for name, (ttl, count) in index["leases"].items()},
            receipts=dict(index["receipts"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise StoreError(
            f"{where}: somebody else has written to it ({type(error).__name__}: {error}); "
            "empty it to start over"
        ) from error


def written(config_map: Json, document: Document, where: object) -> Json:
    """The ConfigMap with this in it; its metadata, and with it its version, stay."""
    index = {
        "format": FORMAT,
        "revision": document.revision,
        "entries": {key: [held.version, held.lease] for key, held in document.entries.items()},
        "leases": {lease: [term.ttl, term.renewals] for lease, term in document.leases.items()},
        "receipts": document.receipts,
    }
    data = {**(config_map.get("data") or {}), INDEX: json.dumps(index, separators=(",", ":"))}
    size = sum(len(text.encode()) for text in data.values())
    size += sum(len(held.packed) for held in document.entries.values())
    if size > ROOM:
        raise StoreError(
            f"{where}: wanted at most {ROOM} bytes, which is all that a ConfigMap holds, got "
            f"{size} after compression; keep less in it, or use --store etcd://..."
        )
    values = {slot(k): b64encode(held.packed).decode() for k, held in document.entries.items()}
    return {**config_map, "data": data, "binaryData": values}


def slot(key: str) -> str:
    """The name under which Kubernetes keeps a key: `jobs/a` is `jobs_2Fa`."""
    name = "".join(map(_spelt, key.encode()))
    name = name.replace(".", "_2E", 1) if name.startswith(".") else name
    return name if len(name) <= _LONGEST_NAME else f"_-{sha256(key.encode()).hexdigest()}"


def _spelt(byte: int) -> str:
    sign = chr(byte)
    return sign if sign.isascii() and (sign.isalnum() or sign in ".-") else f"_{byte:02X}"
