"""The coordinator as the launcher's child: started, and started again when it dies.

It dies when something kills it, or by a fault of its own. Either is an accident: training goes on
without a coordinator, and a new one takes the job up from the store. The job is over when the store
says so, or when the coordinator could not begin at all. One that crashes again and again is given
pauses, and is given up in the end.
"""

import asyncio
import contextlib
import signal
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from midflight.backoff import CALM, LOOK, restart_pause
from midflight.console import say
from midflight.coordinator.core.state import Phase, State
from midflight.coordinator.exit_codes import REFUSED, REPLACED
from midflight.errors import JobFailed, MidflightError, StoreError
from midflight.processes import kill_group, send_signal
from midflight.run.dial import call_async
from midflight.run.hosted import STORE
from midflight.run.processes import Child, describe_end, start_module
from midflight.run.record import ENDED, saved_state
from midflight.rundir import RunDir

MOST_DEATHS = 20
DEATHS_WITHIN = 3600.0  # seconds
MOST_AT_START = 5  # deaths before any coordinator of this launcher has served


def job_exit_code(code: int, saved: State | None, served: bool) -> int | None:
    """The job's exit code, now that its coordinator has ended so; None: it was an accident.

    `saved` is what the store says; `served` whether any coordinator of this launcher has served.
    """
    if saved is not None and saved.phase in ENDED:
        return 0 if saved.phase is Phase.SUCCEEDED else saved.exit_code or 1
    if code in (0, REPLACED):  # 0: the store did not take the end, but no accident ends so
        return code
    return 1 if code == REFUSED and not served else None


class Deaths:
    """The accidents of the last hour: how long to wait after each, and when to give up."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._crashes = 0  # in a row, none of them after a calm time

    def add(self, code: int, *, lived: float, served: bool, now: float) -> float:
        """The pause before the next start, in seconds; JobFailed if there should be none."""
        self._times.append(now)
        while now - self._times[0] > DEATHS_WITHIN:
            self._times.popleft()
        count = len(self._times)
        if not served and count > MOST_AT_START:
            raise JobFailed(f"the coordinator could not be started {count} times; giving up")
        if count > MOST_DEATHS:
            raise JobFailed(f"the coordinator died {count} times within an hour; giving up")
        if code < 0:  # somebody killed it; nothing says that the next one would die too
            return 0.0
        self._crashes = 1 if lived > CALM else self._crashes + 1
        return restart_pause(self._crashes)


class CoordinatorKeeper:
    def __init__(
        self, folder: RunDir, run: str, store: str, listen: str, flags: Sequence[str] = ()
    ) -> None:
        self._folder = folder
        self._run = run
        self._store = store
        self.arguments = ["--run-dir", str(folder.path.absolute()), "--listen", listen, *flags]
        self._child: Child | None = None
        self._deaths = Deaths()
        self._served = False
        self._stopping = asyncio.Event()
        self.answering = asyncio.Event()

    async def keep(self) -> int:
        """Until the job is over; its exit code."""
        while True:
            began = time.monotonic()
            code = await self._once()
            if self._stopping.is_set():
                return code
            job_code = job_exit_code(code, await self._saved(), self._served)
            if job_code is not None:
                return job_code
            now = time.monotonic()
            pause = self._deaths.add(code, lived=now - began, served=self._served, now=now)
            later = f" in {pause:g} s" if pause else ""
            say(f"warning: the coordinator {describe_end(code)}; starting another{later}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                return code

    def stop(self, number: int) -> None:
        """Make it end the job, in good order if it is up already."""
        self._stopping.set()
        if self._child is not None:
            send_signal(self._child.pid, number if self.answering.is_set() else signal.SIGTERM)

    async def kill(self) -> None:
        self._stopping.set()
        if self._child is not None:
            kill_group(self._child.pid)
            await self._child.wait()

    async def _saved(self) -> State | None:
        """None also if the store does not say, for now."""
        try:
            return await asyncio.to_thread(
                saved_state, self._store, self._run, self._folder.read_token()
            )
        except StoreError:
            return None

    async def _once(self) -> int:
        before = self._written_at()
        self._child = await start_module(
            "midflight.coordinator", self.arguments, quiet=False, variables={STORE: self._store}
        )
        watch = asyncio.create_task(self._watch_for_answer(before))
        try:
            code = await self._child.wait()
        finally:
            watch.cancel()
            self.answering.clear()
        self._child = None
        return code

    async def _watch_for_answer(self, before: int | None) -> None:
        while self._written_at() == before:  # noqa: ASYNC110 - a file gives no event
            await asyncio.sleep(LOOK)
        while not self.answering.is_set():
            try:
                (await call_async(self._folder)).close()
            except MidflightError:
                await asyncio.sleep(LOOK)
            else:
                self._served = True
                self.answering.set()

    def _written_at(self) -> int | None:
        """When the coordinator last wrote down where it listens."""
        try:
            return Path(self._folder.path / "address").stat().st_mtime_ns
        except FileNotFoundError:
            return None
