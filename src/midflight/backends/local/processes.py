"""The keepers of this machine's instances: started, found again, told to stop, heard at the end.

An attempt is made once, however often it is asked for: one that runs, or has ended, is told as it
is. A pid is used only while it belongs to the process that was meant. `tell` is called once for
each instance that was returned as Running, when it has ended; what is returned as Ended is not
told again. Closing lets go of everything and touches nothing.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from midflight.backends.local import identity, keeper, limits
from midflight.backends.local.process_watch import Watch
from midflight.backends.local.reports import (
    Ended,
    NotStarted,
    Outcome,
    Running,
    State,
    has_keeper,
    read_state,
)
from midflight.backoff import pauses
from midflight.deadlines import ATTEMPT_END, KEEPER_REPORT

LOG_BYTES, LOG_FILES = 10 << 20, 5
KEEPER_KILLED = "its keeper was killed"
_DEFAULTS = {"limits": limits.NO_LIMITS, "log_bytes": LOG_BYTES, "log_files": LOG_FILES}


class Keepers:
    def __init__(self, tell: Callable[[str, Ended], None], watch: Watch | None = None) -> None:
        """`tell` is given the instance's folder."""
        self._tell = tell
        self._watch = watch or Watch()
        self._own: dict[int, subprocess.Popen[bytes]] = {}  # keepers that are our children
        self._followed: dict[str, int] = {}  # attempts whose end will be told
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, folder: Path, plan: Mapping[str, Any]) -> Outcome:
        """`plan` has argv, env, cwd, grace, attempt and mark; it may have limits, log_bytes and
        log_files. An earlier attempt that still runs is killed first."""
        attempt: int = plan["attempt"]
        async with self._lock(folder):
            if (known := await self._settle(folder, attempt)) is not None:
                return known
            state = read_state(folder)
            if state is not None and state.attempt > attempt:
                return NotStarted(attempt, f"attempt {state.attempt} was made after it already")
            if state is not None and not await self._end(folder, state):
                return NotStarted(attempt, f"attempt {state.attempt} does not end")
            try:
                pid = await asyncio.to_thread(
                    self._launch, folder, {**_DEFAULTS, **plan, "boot": identity.boot()}
                )
            except OSError as error:
                return NotStarted(attempt, f"cannot start a keeper in {folder}: {error.strerror}")
            return await self._report(folder, attempt, pid)

    async def adopt(self, folder: Path, attempt: int) -> Outcome | None:
        """What became of an attempt that somebody has started; None if nobody has."""
        async with self._lock(folder):
            return await self._settle(folder, attempt)

    async def stop(self, folder: Path, grace: float) -> bool:
        """False: nothing of it runs. Asked again, it changes nothing, or shortens the time."""
        async with self._lock(folder):
            state = await self._of_living_keeper(folder)
            if state is None:
                return False
            if grace > 0:
                with contextlib.suppress(OSError):  # a full disk: then it is as long as planned
                    await asyncio.to_thread(keeper.write_file, str(folder), "grace", f"{grace}")
            return _order(state, signal.SIGUSR2 if grace > 0 else signal.SIGUSR1)

    def signal(self, folder: Path, number: int) -> bool:
        """To the instance's group; False if it does not run."""
        state = read_state(folder)
        if state is None or not state.alive:
            return False
        keeper.send(state.pid, number, group=True)
        return True

    def close(self) -> None:
        self._watch.close()
        for task in self._tasks:
            task.cancel()
        for process in self._own.values():
            process.returncode = 0  # or it would complain that it is left running
        self._own.clear()

    # --- finding out ----------------------------------------------------------------------------

    async def _settle(self, folder: Path, attempt: int) -> Outcome | None:
        """How the attempt stands, once its keeper has said so."""
        deadline = time.monotonic() + KEEPER_REPORT
        pause = pauses(0.004, 0.05)
        while True:
            state = read_state(folder)
            if state is not None and state.attempt == attempt:
                if (outcome := await self._judge(folder, state)) is not None:
                    return outcome
            elif (state is not None and state.kept) or not has_keeper(folder):
                return None
            if time.monotonic() > deadline:
                return await self._give_up(folder, attempt)
            await asyncio.sleep(next(pause))

    async def _of_living_keeper(self, folder: Path) -> State | None:
        """None if there is no keeper; then what it has left, if it was killed, is gone as well."""
        deadline = time.monotonic() + ATTEMPT_END
        while True:
            state = read_state(folder)
            if state is not None and state.kept:
                return state
            if not has_keeper(folder) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.02)
        if state is not None:
            await self._judge(folder, state)
        return None

    async def _judge(self, folder: Path, state: State) -> Outcome | None:
        """None: not to be known yet."""
        if state.kept:
            if isinstance(outcome := state.outcome, Running):
                self._follow(folder, state)
            return outcome
        state = read_state(folder) or state  # it may have written its last just before it ended
        outcome = state.outcome
        if outcome is None or isinstance(outcome, Running):
            await asyncio.to_thread(_clear, state)
            outcome = state.ended(-signal.SIGKILL, KEEPER_KILLED, time.time())
        if isinstance(outcome, Ended) and limits.ran_out_of_memory(state.cgroup):
            outcome = replace(outcome, reason="killed: it needed more than --memory")
        limits.remove_cgroup(state.cgroup)
        return outcome

    async def _give_up(self, folder: Path, attempt: int) -> NotStarted:
        state = read_state(folder)
        if state is not None and state.attempt == attempt:
            _order(state, signal.SIGKILL)
            await asyncio.to_thread(_clear, state)
        return NotStarted(attempt, f"its keeper reported nothing for {KEEPER_REPORT:g} s")

    # --- starting -------------------------------------------------------------------------------

    def _launch(self, folder: Path, plan: Mapping[str, Any]) -> int:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        limits.make_cgroup(plan["limits"])
        keeper.write_file(str(folder), "plan.json", json.dumps(plan))
        with open(folder / "keeper.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(folder)],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._own[process.pid] = process
        return process.pid

    async def _report(self, folder: Path, attempt: int, pid: int) -> Outcome:
        """What the keeper that was just started says, or why it says nothing."""
        deadline = time.monotonic() + KEEPER_REPORT
        process = self._own[pid]
        while True:
            code = process.poll()
            state = read_state(folder)
            if state is not None and state.attempt == attempt:
                outcome = await self._settle(folder, attempt)
                if not isinstance(outcome, Running):
                    self._behind(self._reap(pid))
                return outcome or NotStarted(attempt, "its folder was removed")
            if code is not None and not (code == keeper.BUSY and has_keeper(folder)):
                del self._own[pid]
                if code < 0:  # somebody's doing, so the plan is as good as before
                    return Ended(attempt, code, KEEPER_KILLED, time.time())
                return NotStarted(attempt, _why_nothing(code, folder))
            if time.monotonic() > deadline:
                process.kill()
                self._behind(self._reap(pid))
                return await self._give_up(folder, attempt)
            await asyncio.sleep(0.005)

    async def _end(self, folder: Path, state: State) -> bool:
        """Kill an earlier attempt, and tell of its end before its state is written over."""
        deadline = time.monotonic() + ATTEMPT_END
        _order(state, signal.SIGUSR1)
        while state.kept:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        await self._bury(folder, state)
        return True

    # --- ends -----------------------------------------------------------------------------------

    def _follow(self, folder: Path, state: State) -> None:
        async def bury() -> None:
            async with self._lock(folder):
                await self._bury(folder, state)

        self._followed[str(folder)] = state.attempt
        self._watch.add(
            str(folder),
            state.keeper_pid,
            state.keeper_start_time,
            lambda: self._behind(bury()),
        )

    async def _bury(self, folder: Path, state: State) -> None:
        """Tell of the end of what was followed, whoever has noticed it first."""
        if self._followed.get(str(folder)) != state.attempt:
            return
        del self._followed[str(folder)]
        self._watch.drop(str(folder))
        await self._reap(state.keeper_pid)
        outcome = await self._judge(folder, read_state(folder) or state)
        if isinstance(outcome, Ended):
            self._tell(str(folder), outcome)

    async def _reap(self, pid: int) -> None:
        """A keeper that has ended, or is about to, must not stay as a zombie."""
        process = self._own.pop(pid, None)
        for _ in range(1000):
            if process is None or process.poll() is not None:
                return
            await asyncio.sleep(0.01)

    def _behind(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lock(self, folder: Path) -> asyncio.Lock:
        return self._locks.setdefault(str(folder), asyncio.Lock())


def _order(state: State, number: int) -> bool:
    """A signal to the keeper, if it is still the same."""
    if state.kept:
        keeper.send(state.keeper_pid, number)
        return True
    return False


def _clear(state: State) -> None:
    """What an instance without a keeper has left."""
    if state.alive:
        keeper.send(state.pid, signal.SIGKILL, group=True)
    identity.kill_marked(state.mark)


def _why_nothing(code: int, folder: Path) -> str:
    if code == keeper.CANNOT_WRITE:
        return f"cannot write in {folder}; is the disk full?"
    with contextlib.suppress(OSError):
        with open(folder / "keeper.log", "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 2000))
            last = log.read().decode(errors="replace").strip().splitlines()
        if last:
            return f"its keeper ended with {code}: {last[-1]}"
    return f"its keeper ended with {code} before it could start anything"
