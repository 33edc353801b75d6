"""What every store refuses, so that code written against one works on the other; and key ranges.

Keys travel as UTF-8. The byte 0xff never occurs in UTF-8: it closes the range of a prefix, and
behind it a backend may keep keys of its own that no caller can name.
"""

import math

from midflight.errors import StoreError
from midflight.store.interface import MAX_VALUE

MAX_KEY = 1024


def encode_prefix(prefix: str) -> bytes:
    try:
        raw = prefix.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"store key {prefix!r}: wanted text that UTF-8 can write") from error
    if len(raw) > MAX_KEY:
        raise StoreError(
            f"store key {prefix[:40]!r}...: wanted at most {MAX_KEY} bytes, got {len(raw)}"
        )
    return raw


def encode_key(key: str) -> bytes:
    if not key:
        raise StoreError("store key '': wanted at least one character")
    return encode_prefix(key)


def end_of_prefix(raw: bytes) -> bytes:
    """The first key behind all those that begin with `raw`."""
    return raw + b"\xff"


def check_value(key: str, value: bytes) -> None:
    if len(value) > MAX_VALUE:
        raise StoreError(
            f"store key {key!r}: wanted a value of at most {MAX_VALUE} bytes, got {len(value)};"
            " split it over several keys"
        )


def check_ttl(ttl: float) -> None:
    if not (ttl > 0 and math.isfinite(ttl)):
        raise StoreError(f"lease: wanted a time to live above 0 seconds, got {ttl!r}")
