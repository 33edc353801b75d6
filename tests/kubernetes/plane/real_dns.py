"""The cluster's names for pods in real containers: one question, one answer. Pure.

A Service without an address of its own means its pods, as `names` finds them; one that selects
nothing has the address that it was given. Only IPv4 addresses are known; everything outside the
cluster's domain does not exist, because nothing outside can be reached.
"""

import struct
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from tests.kubernetes.plane.api import Json

Addresses = Mapping[str, tuple[str, ...]]  # by full name
_HEAD = struct.Struct(">HHHHHH")
_A, _ANY, _IN = 1, 255, 1
_NO_ERROR, _MALFORMED, _NO_SUCH_NAME = 0, 1, 3
_ANSWERED = 0x8580  # a response, by an authority, that recursion was asked of and is there
_TTL = 1  # seconds: pods come and go


def addresses(
    domain: str, records: Iterable[tuple[str, str, str]], services: Iterable[Json]
) -> Addresses:
    """`records` are those of `names`: (namespace, name, address)."""
    found: dict[str, tuple[str, ...]] = {}
    for namespace, name, ip in records:
        full = f"{name}.{namespace}.svc.{domain}"
        found[full] = (*found.get(full, ()), ip)
    for each in services:
        meta, spec = each["metadata"], each["spec"]
        if not spec.get("selector") and spec.get("clusterIP", "None") != "None":
            found[f"{meta['name']}.{meta['namespace']}.svc.{domain}"] = (spec["clusterIP"],)
    return found


def answer(query: bytes, known: Addresses) -> bytes | None:
    """None for what is no question."""
    if len(query) < _HEAD.size:
        return None
    number, flags, questions, *_ = _HEAD.unpack_from(query)
    if flags & 0x8000:
        return None
    asked = _question(query) if questions == 1 else None
    if asked is None:
        return _HEAD.pack(number, _ANSWERED | _MALFORMED, 0, 0, 0, 0)
    name, kind, end = asked
    there = name in known
    ips = known[name] if there and kind in (_A, _ANY) else ()
    code = _NO_ERROR if there else _NO_SUCH_NAME
    head = _HEAD.pack(number, _ANSWERED | code, 1, len(ips), 0, 0)
    return head + query[_HEAD.size : end] + b"".join(map(_record, ips))


def _record(ip: str) -> bytes:
    """Of the name that was asked for, which stands right behind the head."""
    packed = IPv4Address(ip).packed
    return struct.pack(">HHHIH", 0xC000 | _HEAD.size, _A, _IN, _TTL, len(packed)) + packed


def _question(query: bytes) -> tuple[str, int, int] | None:
    """The name in small letters, the kind of record, and where the question ends."""
    labels, at = [], _HEAD.size
    while at < len(query) and (size := query[at]):
        if size > 63 or at + 1 + size > len(query):
            return None
        labels.append(query[at + 1 : at + 1 + size].decode("latin-1").lower())
        at += 1 + size
    if at + 5 > len(query):
        return None
    (kind,) = struct.unpack_from(">H", query, at + 1)
    return ".".join(labels), kind, at + 5
