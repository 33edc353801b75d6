"""The job's state in the store: written before a world is announced, read after a death.

One entry per job, replaced by compare-and-set. A coordinator that finds the entry changed by
somebody else has been replaced and must stop: that is the fence against two of them. Every write
carries the name of its writer, so that one which arrived though the store gave no answer is known
for what it is.
"""

import secrets
import time
from dataclasses import dataclass
from typing import Protocol

from midflight.coordinator.core.state import State, restored
from midflight.errors import Conflict, MidflightError, StoreError
from midflight.protocol import codec
from midflight.store.interface import Store

FORMAT = 2


@dataclass(frozen=True)
class Saved:
    format: int
    saved_at: float  # wall clock
    monotonic: float  # the clock of the state's own times, at the same moment
    state: State
    writer: str = ""  # like no other coordinator's; "": nobody asks


class Saves(Protocol):
    """Where a shell puts the state; blocking, and done when it returns."""

    def save(self, state: State, now: float) -> None: ...


class Saving:
    """Blocking; the shell calls it from a thread."""

    def __init__(self, store: Store, job: str) -> None:
        self._store = store
        self._key = f"jobs/{job}/state"
        self._version = 0  # 0: the entry must not exist yet
        self._writer = secrets.token_hex(8)

    def load(self, now: float) -> State | None:
        entry = self._store.get(self._key)
        if entry is None:
            return None
        self._version = entry.version
        return read(entry.value, now, self._key)

    def save(self, state: State, now: float) -> None:
        value = written(state, now, self._writer)
        try:
            entry = self._store.put(self._key, value, expect=self._version)
        except Conflict as error:
            if error.current is None or _writer_of(error.current.value) != self._writer:
                raise
            # It is a write of our own that the store had given up, and that arrived all the same.
            entry = self._store.put(self._key, value, expect=error.current.version)
        self._version = entry.version

    def forget(self) -> None:
        """Leave nothing for a later job of the same name."""
        self._store.delete(self._key, expect=None)


def written(state: State, now: float, writer: str = "") -> bytes:
    return codec.dumps(Saved(FORMAT, time.time(), now, state, writer))


def _writer_of(value: bytes) -> object:
    """None if it is not a saved state at all."""
    try:
        plain = codec.loads(value)
    except MidflightError:
        return None
    return plain.get("writer") if isinstance(plain, dict) else None


def read(value: bytes, now: float, name: str) -> State:
    """What `written` gave, at whatever time and on whatever machine, as of now."""
    plain = codec.loads(value)
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise StoreError(
            f"the saved state of {name} has another format than this release's {FORMAT}; "
            "finish the job with the release that started it"
        )
    saved = codec.decode(Saved, plain)
    away = max(0.0, time.time() - saved.saved_at)
    return restored(saved.state, now, saved.monotonic + away)
