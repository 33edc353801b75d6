"""Audit trails: who asked for what, when, from where, with what outcome; a line of JSON for each.

The server's trail has the kernel's word for who it was. A coordinator has the name that its client
gave in the handshake. Nobody on the way can change that, but whoever has the token can give any
name: the trail tells people who share a token apart, and does not prove who they are.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from midflight.protocol.views import time_text

AUDIT = "audit.jsonl"
TORCHRUN_AUDIT = "torchrun.audit.jsonl"  # in the user's home: torchrun's jobs have no folder
MOST_BYTES = 16 << 20  # of the file; one older is kept
LOCAL = "this machine"
_LONGEST = 100  # characters of a name
_NAME = re.compile(r"([^/]*)/(\d{1,10})/(\d{1,10})")


@dataclass(frozen=True)
class Caller:
    user: str
    uid: int | None = None
    pid: int | None = None

    def __str__(self) -> str:
        return f"{self.user}/{self.uid}/{self.pid}"


@dataclass(frozen=True)
class Entry:
    what: str
    about: str  # a job, a run or a node
    done: bool | None  # None: it is not known yet
    reason: str = ""


def line(at: float, caller: Caller, place: str, entry: Entry) -> str:
    return json.dumps(view(time_text(at), caller, place, entry))


def view(at: str, caller: Caller, place: str, entry: Entry) -> dict[str, Any]:
    who = {"user": caller.user, "uid": caller.uid, "pid": caller.pid, "from": place}
    outcome = "asked" if entry.done is None else "done" if entry.done else "refused"
    what = {"what": entry.what, "about": entry.about, "outcome": outcome, "reason": entry.reason}
    return {"at": at, **who, **what}


def caller_of(name: str) -> Caller:
    """A program that names no user, such as the operator, is known by its own name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return Caller(name[:_LONGEST])
    return Caller(found[1][:_LONGEST], int(found[2]), int(found[3]))
