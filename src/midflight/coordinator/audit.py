"""Who asked this coordinator for what, and with what outcome: one line of JSON for each request.

A change is noted when its outcome is known, with the time at which it was asked for. One that is
asked for again under the same id, over a new connection, is the same. A signal has no sender that
we could name; only this user and root can send one.
"""

import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from midflight import terminal
from midflight.protocol.audit import (
    LOCAL,
    MOST_BYTES,
    Caller,
    Entry,
    caller_of,
    line,
)
from midflight.protocol.messages import ResizeRequested
from midflight.sink import Files

_LONGEST_LIST = 1000  # characters


@dataclass(frozen=True)
class Client:
    ticket: int
    caller: Caller
    place: str  # the address that it calls from


def client_of(ticket: int, name: str, place: str) -> Client:
    return Client(ticket, caller_of(name), place)


class AuditTrail:
    def __init__(self, run: str, path: Path | None) -> None:
        """`path`: of the file, for this user alone; None: nothing is kept."""
        self._run = run
        self._path = path
        self._files = Files(terminal.report_unwritten(path), MOST_BYTES, mode=0o600)
        self._hosts: Mapping[str, int] | None = None  # as they were last listed
        self._address = ""  # where the run was last said to go on
        self._asked: dict[int, tuple[float, Client, ResizeRequested]] = {}  # by ticket

    def ask_resize(self, client: Client, request: ResizeRequested) -> None:
        at = time.time()
        for ticket, (before, _, other) in list(self._asked.items()):
            if request.id and request.id == other.id:  # only the last connection is answered
                at = before
                del self._asked[ticket]
        self._asked[client.ticket] = (at, client, request)

    def answer_resize(self, ticket: int, ok: bool, detail: str) -> None:
        if ticket in self._asked:
            at, client, request = self._asked.pop(ticket)
            what = f"resize {self._run} {_flags(request)}"
            self._note(at, client.caller, client.place, Entry(what, self._run, ok, detail))

    def stop(self, caller: Caller, place: str, reason: str) -> None:
        entry = Entry(f"stop {self._run}", self._run, done=True, reason=reason)
        self._note(time.time(), caller, place, entry)

    def list_hosts(self, client: Client, hosts: Mapping[str, int]) -> None:
        """Whoever looks for hosts says the same again and again; only a change is noted."""
        if hosts != self._hosts:
            self._hosts = hosts
            listing = ",".join(f"{name}:{slots}" for name, slots in hosts.items())
            self._note_done(client, f"hosts of {self._run}: {listing:.{_LONGEST_LIST}}")

    def move(self, client: Client, address: str) -> None:
        if address != self._address:
            self._address = address
            self._note_done(client, f"{self._run} goes on at {address:.{_LONGEST_LIST}}")

    def _note_done(self, client: Client, what: str) -> None:
        self._note(time.time(), client.caller, client.place, Entry(what, self._run, done=True))

    def stop_by_signal(self) -> None:
        self.stop(replace(this_process(), pid=None), LOCAL, "by a signal")

    def _note(self, at: float, caller: Caller, place: str, entry: Entry) -> None:
        if self._path is not None:
            self._files.put(self._path, [line(at, caller, place, entry)])

    def close(self) -> None:
        self._files.close()


def this_process() -> Caller:
    return known(os.geteuid(), os.getpid())


def known(uid: int, pid: int) -> Caller:
    """Without a name if this machine has none for that user."""
    try:
        return Caller(pwd.getpwuid(uid).pw_name, uid, pid)
    except KeyError:
        return Caller("", uid, pid)


def _flags(request: ResizeRequested) -> str:
    """As they would be typed; hosts are a server's word for the members on them."""
    words = [] if request.to is None else [f"--to {request.to}"]
    words += [f"--add {request.add}"] if request.add else []
    words += [f"--remove {request.remove}"] if request.remove else []
    words += [f"--remove-member {name}" for name in request.names]
    words += [f"without host {name}" for name in request.hosts]
    return " ".join(words)
