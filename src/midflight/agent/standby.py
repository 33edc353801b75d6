"""Warm standbys: processes that have imported torch already and wait for a command line.

One template (`midflight.runtime.warm`) imports once and forks on request; how many standbys there
should be is decided here. Each request carries one end of a fresh socket, which becomes the
standby's only tie to the agent: it says its pid there, gets its work there, and ends when the
socket closes. Standbys are the agent's own children (it adopts them), so they are reaped like any
other member. Without a template members start cold, and the template is tried again later.
"""

import asyncio
import logging
import os
import shutil
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from midflight import backoff
from midflight.agent.processes import Channels, Processes
from midflight.deadlines import TEMPLATE_FORK, TEMPLATE_START
from midflight.protocol import codec
from midflight.protocol.handover import LENGTH, READY, Work, parse_command

# The template's exit codes that mean something.
_CAUSES = {3: "torch cannot be imported", 4: "importing torch initialized CUDA"}
_COLD_STARTS = 3.0  # seconds in which members on a busy machine import torch themselves
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# Read when an interpreter or torch is loaded: a different value needs a process of its own.
_READ_EARLY = ("PYTHON", "LD_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "LC_", "LANG", "TZ")
_READ_EARLY_BUT_HONOURED = ("OMP_NUM_THREADS", "PYTHONUNBUFFERED")


class Standby:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.pid = 0  # 0: not forked yet

    def hand_over(self, work: Work, stdout: int, stderr: int) -> None:
        """Turn the standby into a member; OSError if it is gone."""
        body = codec.dumps(work)
        self.sock.settimeout(1.0)
        try:
            socket.send_fds(self.sock, [LENGTH.pack(len(body))], [stdout, stderr])
            self.sock.sendall(body)
        finally:
            self.sock.close()


class StandbyPool:
    def __init__(
        self, count: int, processes: Processes, environment: dict[str, str], log: logging.Logger
    ) -> None:
        self._count = count
        self._processes = processes
        self._environment = {**environment, "PYTHONUNBUFFERED": "1"}
        self._log = log
        self.later = False  # start the template when the first members had time to start cold
        self._control: socket.socket | None = None  # None: there is no template
        self._started_at = 0.0
        self._hot = False  # the template has forked at least once
        self._failures = 0
        self._forking: set[Standby] = set()
        self._ready: deque[Standby] = deque()
        self._waiting: deque[asyncio.Future[Standby | None]] = deque()
        self._closed = False
        self._settled = asyncio.Event()  # a standby is ready, or there will be none for now

    def open(self) -> None:
        if self._count and not self._processes.can_adopt:
            self._log.warning("warm standbys need Linux; members start cold")
        elif self._count and self.later:
            asyncio.get_running_loop().call_later(_COLD_STARTS, self._start_template)
        elif self._count:
            self._start_template()
            return
        self._settled.set()

    def close(self) -> None:
        self._closed = True
        self._forget_template()
        for standby in [*self._ready, *self._forking]:
            self._drop(standby)

    def fits(self, command: tuple[str, ...], environment: Mapping[str, str]) -> bool:
        """Whether a standby would behave as this command does when it starts cold."""
        program = parse_command(command)
        can_fork = self._control is not None and (self._hot or not self.later)
        if not (self._ready or can_fork) or program is None:
            return False
        if not program.is_module and not Path(program.target).is_file():
            return False
        return _is_own_interpreter(program.interpreter, environment) and not any(
            environment.get(name) != self._environment.get(name)
            for name in {*environment, *self._environment}
            if name.startswith(_READ_EARLY) and name not in _READ_EARLY_BUT_HONOURED
        )

    async def warmed(self) -> None:
        """Wait until a standby is ready, if one can be expected at all; never for ever."""
        await asyncio.wait([asyncio.ensure_future(self._settled.wait())], timeout=TEMPLATE_START)

    async def take(self) -> Standby | None:
        """A standby, if need be after a fork; None: start cold."""
        if self._ready:
            standby = self._ready.popleft()
            asyncio.get_running_loop().remove_reader(standby.sock)
            self._refill()
            return standby
        if self._control is None:
            return None
        waiter: asyncio.Future[Standby | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._refill()
        age = time.monotonic() - self._started_at
        await asyncio.wait([waiter], timeout=TEMPLATE_FORK if self._hot else TEMPLATE_START - age)
        if waiter.done():
            return waiter.result()
        self._waiting.remove(waiter)
        return None

    def _start_template(self) -> None:
        if self._closed:
            return
        control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "midflight.runtime.warm"]
            self._processes.spawn(
                [*command, str(theirs.fileno()), str(os.getpid())],
                self._environment,
                Channels(stdout=2, stderr=2, passed=(theirs.fileno(),)),
                self._template_ended,
            )
        control.setblocking(False)
        self._control = control
        self._started_at = time.monotonic()
        self._hot = False
        self._refill()

    def _template_ended(self, code: int) -> None:
        self._forget_template()
        if self._closed:
            return
        pause = backoff.pause(_SHORTEST_PAUSE, _LONGEST_PAUSE, self._failures)
        self._failures += 1
        cause = _CAUSES.get(code, f"its template ended ({code})")
        self._log.warning("no warm standby: %s; retrying in %g s", cause, pause)
        asyncio.get_running_loop().call_later(pause, self._start_template)

    def _forget_template(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        self._settled.set()
        while self._waiting:
            self._waiting.popleft().set_result(None)

    def _refill(self) -> None:
        wanted = self._count + len(self._waiting) - len(self._ready) - len(self._forking)
        for _ in range(wanted):
            if self._control is not None:
                self._request_fork(self._control)

    def _request_fork(self, control: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(control, [b"f"], [theirs.fileno()])
            except OSError as error:  # its end will be reported, or it has enough to do
                self._log.info("the template takes no request: %s", error)
                ours.close()
                return
        standby = Standby(ours)
        self._forking.add(standby)
        asyncio.get_running_loop().add_reader(ours, self._heard, standby)

    def _heard(self, standby: Standby) -> None:
        try:
            word = standby.sock.recv(READY.size)
        except OSError:
            word = b""
        if len(word) != READY.size:
            self._drop(standby)
            return
        self._forking.discard(standby)
        (standby.pid,) = READY.unpack(word)
        self._processes.adopt(standby.pid, lambda code: None)
        self._hot = True
        self._settled.set()
        self._failures = 0
        if self._waiting:
            asyncio.get_running_loop().remove_reader(standby.sock)
            self._waiting.popleft().set_result(standby)
        else:
            self._ready.append(standby)

    def _drop(self, standby: Standby) -> None:
        """Its end of the socket is closed, or ours is about to be."""
        asyncio.get_running_loop().remove_reader(standby.sock)
        standby.sock.close()
        self._forking.discard(standby)
        if standby in self._ready:
            self._ready.remove(standby)
            if not self._closed:
                self._refill()


def _is_own_interpreter(command: str, environment: Mapping[str, str]) -> bool:
    """The same file in the same folder: the same file elsewhere is another virtual environment."""
    found = shutil.which(command, path=environment.get("PATH"))
    if found is None:
        return False
    own = Path(sys.executable).absolute()
    there = Path(found).absolute()
    return there.parent == own.parent and there.resolve() == own.resolve()
