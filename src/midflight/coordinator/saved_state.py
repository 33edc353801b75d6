"""The job's state in the store: written before a world is announced, read after a death.

One entry per job, replaced by compare-and-set. A coordinator that finds the entry changed by
somebody else has been replaced and must stop: that is the fence against two of them. Every write
carries the name of its writer, so that one which arrived though the store gave no answer is known
for what it is. The entry is sealed: a MAC with the run's token over the run's name and the state.
Whoever can only write the store cannot have anything started. The state is compressed, because a
store takes 1 MiB at once: that is enough for about 6,000 members.
"""

import base64
import binascii
import hmac
import secrets
import time
import zlib
from dataclasses import dataclass
from typing import Protocol

from midflight.coordinator.core.state import State, restored
from midflight.errors import Conflict, MidflightError, SealBroken, StoreError
from midflight.protocol import codec
from midflight.store.interface import Store

FORMAT = 5
_MARK = f"midflight-state/{FORMAT}".encode()  # then the MAC, and on the next line the state


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

    def __init__(self, store: Store, job: str, secret: bytes) -> None:
        self._store = store
        self._job = job
        self._secret = secret
        self._key = state_key(job)
        self._version = 0  # 0: the entry must not exist yet
        self._writer = secrets.token_hex(8)

    def load(self, now: float) -> State | None:
        entry = self._store.get(self._key)
        if entry is None:
            return None
        self._version = entry.version
        return read(entry.value, now, self._job, self._secret)

    def save(self, state: State, now: float) -> None:
        value = written(state, now, self._job, self._secret, self._writer)
        try:
            entry = self._store.put(self._key, value, expect=self._version)
        except Conflict as error:
            if error.current is None or self._writer_of(error.current.value) != self._writer:
                raise
            # It is a write of our own that the store had given up, and that arrived all the same.
            entry = self._store.put(self._key, value, expect=error.current.version)
        self._version = entry.version

    def _writer_of(self, value: bytes) -> str | None:
        """None if it is not a state of this run at all."""
        try:
            return _unsealed(value, self._job, self._secret).writer
        except MidflightError:
            return None


def state_key(job: str) -> str:
    return f"jobs/{job}/state"


def forget(store: Store, job: str) -> None:
    """Leave nothing for a later job of the same name."""
    store.delete(state_key(job), expect=None)


def written(state: State, now: float, job: str, secret: bytes, writer: str = "") -> bytes:
    plain = codec.dumps(Saved(FORMAT, time.time(), now, state, writer))
    body = base64.b64encode(zlib.compress(plain))  # as text: it travels in messages, too
    return b"%b %b\n%b" % (_MARK, _mac(body, job, secret), body)


def _mac(body: bytes, job: str, secret: bytes) -> bytes:
    return (
        hmac.digest(secret, b"midflight state\n%b\n%b" % (job.encode(), body), "sha256")
        .hex()
        .encode()
    )


def _unsealed(value: bytes, job: str, secret: bytes) -> Saved:
    head, _, body = value.partition(b"\n")
    mark, _, mac = head.partition(b" ")
    if mark != _MARK:
        raise StoreError(
            f"the saved state of {job} has another format than this release's {FORMAT}; "
            "finish the job with the release that started it"
        )
    if not hmac.compare_digest(mac, _mac(body, job, secret)):
        raise SealBroken(
            f"the saved state of {job} does not fit the run's token: somebody has changed it, or "
            "it is another run's; nothing is started. Bring the token file of that run, choose "
            f"another name, or delete {state_key(job)} from the store to begin anew"
        )
    try:
        plain = zlib.decompress(base64.b64decode(body, validate=True))
    except (zlib.error, binascii.Error) as error:
        raise StoreError(f"the saved state of {job} cannot be read: {error}") from None
    return codec.decode(Saved, codec.loads(plain))


def read(value: bytes, now: float, job: str, secret: bytes) -> State:
    """What `written` gave, at whatever time and on whatever machine, as of now."""
    saved = _unsealed(value, job, secret)
    away = max(0.0, time.time() - saved.saved_at)
    return restored(saved.state, now, saved.monotonic + away)
