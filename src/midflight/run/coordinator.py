"""The coordinator as the launcher's child: started, and started again when something kills it.

An exit code of its own is the job's exit code. Death by a signal is an accident: training goes on
without a coordinator, and a new one takes the job up from the store, unless the store says that
the job was over already.
"""

import asyncio
import signal
import time
from collections import deque
from pathlib import Path

from midflight.console import say
from midflight.coordinator.core.state import Phase
from midflight.errors import JobFailed, MidflightError
from midflight.run.calling import call_async
from midflight.run.processes import Child, describe_end, kill_session, send_signal, start_module
from midflight.run.saved import ENDED, saved_state
from midflight.rundir import RunDir

MOST_DEATHS = 20
DEATHS_WITHIN = 3600.0  # seconds
_LOOK_SECONDS = 0.05


class CoordinatorKeeper:
    def __init__(self, folder: RunDir, run: str, store: str, listen: str, verbose: bool) -> None:
        self._folder = folder
        self._run = run
        self._store = store
        self._arguments = ["--run-dir", str(folder.path.absolute()), "--listen", listen]
        self._arguments += ["--store", store, *(["--verbose"] if verbose else [])]
        self._child: Child | None = None
        self._deaths: deque[float] = deque()
        self._stopping = False
        self.answering = asyncio.Event()

    async def keep(self) -> int:
        """Until the job is over; its exit code."""
        while True:
            code = await self._once()
            if code >= 0 or self._stopping:
                return code
            state = await asyncio.to_thread(saved_state, self._store, self._run)
            if state is not None and state.phase in ENDED:
                return 0 if state.phase is Phase.SUCCEEDED else state.exit_code or 1
            self._count_death()
            say(f"warning: the coordinator {describe_end(code)}; starting another")

    def stop(self, number: int) -> None:
        """Make it end the job, in good order if it is up already."""
        self._stopping = True
        if self._child is not None:
            send_signal(self._child.pid, number if self.answering.is_set() else signal.SIGTERM)

    async def kill(self) -> None:
        self._stopping = True
        if self._child is not None:
            kill_session(self._child.pid)
            await self._child.wait()

    async def _once(self) -> int:
        before = self._written_at()
        self._child = await start_module("midflight.coordinator", self._arguments, quiet=False)
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
            await asyncio.sleep(_LOOK_SECONDS)
        while not self.answering.is_set():
            try:
                (await call_async(self._folder)).close()
            except MidflightError:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                self.answering.set()

    def _written_at(self) -> int | None:
        """When the coordinator last wrote down where it listens."""
        try:
            return Path(self._folder.path / "address").stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _count_death(self) -> None:
        now = time.monotonic()
        self._deaths.append(now)
        while now - self._deaths[0] > DEATHS_WITHIN:
            self._deaths.popleft()
        if len(self._deaths) > MOST_DEATHS:
            raise JobFailed(
                f"the coordinator was killed {len(self._deaths)} times within an hour; giving up"
            )
