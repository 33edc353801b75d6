"""What a keeper has written down about its instance, read back.

`state.json` is written whole or not at all; one that is missing, or is no state, means that
nothing is known. Whether its keeper still lives is asked anew each time.
"""

import contextlib
import fcntl
import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from midflight.backends.local import identity


@dataclass(frozen=True)
class Running:
    attempt: int
    pid: int
    started_at: float


@dataclass(frozen=True)
class Ended:
    attempt: int
    code: int  # negative: the number of a signal
    reason: str  # "" if it ended by itself
    ended_at: float
    pid: int = 0
    started_at: float = 0.0


@dataclass(frozen=True)
class NotStarted:
    attempt: int
    reason: str


Outcome = Running | Ended | NotStarted


@dataclass(frozen=True)
class State:
    attempt: int
    mark: str = ""
    cgroup: str = ""
    boot: str = ""
    keeper_pid: int = 0
    keeper_start_time: str = ""
    pid: int = 0  # 0: it has not been started yet
    start_time: str = ""
    started_at: float = 0.0  # 0: not known to run yet
    ended_at: float = 0.0
    code: int | None = None  # None: it has not ended, as far as the keeper could say
    reason: str = ""
    not_started: str = ""

    @property
    def kept(self) -> bool:
        """Whether its keeper lives."""
        return identity.is_same(self.keeper_pid, self.keeper_start_time, self.boot)

    @property
    def alive(self) -> bool:
        """Whether its first process lives."""
        return identity.is_same(self.pid, self.start_time, self.boot)

    @property
    def outcome(self) -> Outcome | None:
        """What the keeper says; None before it has said anything."""
        if self.not_started:
            return NotStarted(self.attempt, self.not_started)
        if self.code is not None:
            return self.ended(self.code, self.reason, self.ended_at)
        if self.pid and self.started_at:
            return Running(self.attempt, self.pid, self.started_at)
        return None

    def ended(self, code: int, reason: str, at: float) -> Ended:
        return Ended(self.attempt, code, reason, at, self.pid, self.started_at)


def read_state(folder: Path) -> State | None:
    try:
        content = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return _state(content) if isinstance(content, dict) else None


def _state(content: dict[str, Any]) -> State | None:
    known = {field.name: field.default for field in fields(State)}
    own = {name: value for name, value in content.items() if name in known and value is not None}
    numbers = ("attempt", "keeper_pid", "pid", "code")
    if type(own.get("attempt")) is not int or any(
        type(own[name]) is not (int if name in numbers else type(known[name]))
        for name in own
        if name not in ("started_at", "ended_at")
    ):
        return None
    return State(**own)


def has_keeper(folder: Path) -> bool:
    """Whether some keeper holds the folder, though it may not have written anything yet."""
    with contextlib.suppress(OSError):  # there is no such folder, or no lock yet
        handle = os.open(folder / "keeper.lock", os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False
