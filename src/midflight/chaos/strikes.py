"""Carrying a strike out on real processes. Each one is undone when it is over, however it ends."""

import asyncio
import signal
from collections.abc import Mapping

from midflight.backends.local.chaos import cut, cut_between
from midflight.chaos import disk
from midflight.chaos.choice import ACTIONS, CUT, FILL, KILL, PAUSE, RESIZE, SLOW, Strike
from midflight.chaos.processes import Guard, Handle, coordinator_of, is_member
from midflight.chaos.sizes import Sizes
from midflight.errors import Refused
from midflight.protocol.wire import split_address
from midflight.quantities import counted
from midflight.rundir import RunDir

FILL_LIMIT = 256 << 20  # bytes
_CUT_SECONDS = 0.02  # between two cuts: whoever dials again is cut again
_SLOW_SECONDS = 0.1  # standing still, and running, in turns: less than any suspicion takes
_GONE = "it had ended before"


class Strikes:
    def __init__(self, folder: RunDir, sizes: Sizes, fill_limit: int = FILL_LIMIT) -> None:
        self._folder = folder
        self._sizes = sizes
        self._fill_limit = fill_limit
        self._guard = Guard()

    def close(self) -> None:
        self._guard.close()

    def impossible(self, pids: Mapping[str, int]) -> dict[str, str]:
        """Actions that cannot be done to this training, with the reason."""
        found = {
            PAUSE: self._no_coordinator(),
            CUT: _no_cut(pids),
            FILL: disk.objection(self._folder.path, self._fill_limit),
        }
        if not pids:
            nobody = "no member of it is a process of yours on this machine"
            found |= {action: nobody for action in ACTIONS if action not in (PAUSE, FILL, RESIZE)}
        return {action: reason for action, reason in found.items() if reason}

    def _no_coordinator(self) -> str:
        here = coordinator_of(self._folder) is not None
        return "" if here else "its coordinator is not a process of yours on this machine"

    async def carry_out(self, strike: Strike, pids: Mapping[str, int]) -> str:
        """What was done, in words, once it is over."""
        if strike.action == RESIZE:
            return await self._sizes.change(strike.to)
        if strike.action == FILL:
            with disk.filled(self._folder.path, self._fill_limit) as words:
                await asyncio.sleep(strike.seconds)
            return words
        pid = self._target(strike, pids)
        if pid is None:
            return _GONE
        if strike.peer:
            return self._cut_between(pid, pids.get(strike.peer, 0))
        try:
            handle = Handle(pid)
        except ProcessLookupError:
            return _GONE
        with handle:
            return await self._signal(strike, handle)

    def _target(self, strike: Strike, pids: Mapping[str, int]) -> int | None:
        if strike.action == PAUSE:
            return coordinator_of(self._folder)
        pid = pids.get(strike.target, 0)
        return pid if is_member(pid, self._folder) else None

    async def _signal(self, strike: Strike, target: Handle) -> str:
        if strike.action == KILL:
            return "killed" if target.send(signal.SIGKILL) else _GONE
        if strike.action == CUT:
            return await self._cut(target, strike.seconds)
        if strike.action == SLOW:
            return await self._slow(target, strike.seconds)
        with self._guard.stopped(target) as alive:
            if not alive:
                return _GONE
            await asyncio.sleep(strike.seconds)
        return "was stopped, then continued"

    async def _slow(self, target: Handle, seconds: float) -> str:
        for _ in range(round(seconds / (2 * _SLOW_SECONDS))):
            with self._guard.stopped(target) as alive:
                if not alive:
                    return "ran half of the time until it ended"
                await asyncio.sleep(_SLOW_SECONDS)
            await asyncio.sleep(_SLOW_SECONDS)
        return "ran half of the time"

    async def _cut(self, target: Handle, seconds: float) -> str:
        port = split_address(self._folder.read_address() or ":0")[1]
        loop = asyncio.get_running_loop()
        until, times = loop.time() + seconds, 0
        while loop.time() < until:
            times += cut(target.pid, port)
            await asyncio.sleep(_CUT_SECONDS)
        return f"was cut off from the coordinator {times} times"

    def _cut_between(self, pid: int, other: int) -> str:
        if not is_member(other, self._folder):
            return _GONE
        return f"{counted(cut_between(pid, other), 'connection')} between them broke"


def _no_cut(pids: Mapping[str, int]) -> str:
    try:
        for pid in pids.values():
            cut(pid, port=0)  # nobody is connected to that: it only tries
    except (Refused, PermissionError) as error:
        return str(error)
    return ""
