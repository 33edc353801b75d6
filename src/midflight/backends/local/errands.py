"""Work that goes on behind: in lanes, one piece at a time in each, and lanes side by side.

A lane belongs to a job: one for each of its instances, one for its code, and so on. What is the
last for a job waits for all of its lanes, and whatever is given for that job later waits for it,
so that a job deleted and submitted anew under its name never meets what is left of the first one.
Pieces answer for their own errors; one that raises all the same is written to the log.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

_K = TypeVar("_K")
Work = Callable[[], Awaitable[None]]

log = logging.getLogger("midflight.backends")


class Errands:
    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], asyncio.Task[None]] = {}  # the newest piece of each
        self._last: dict[str, asyncio.Task[None]] = {}

    def do(self, job: str, lane: str, work: Work) -> "asyncio.Task[None]":
        """After everything that was given for this lane before. The task never raises."""
        before = [self._lanes.get((job, lane)), self._last.get(job)]
        task = asyncio.create_task(_after(before, work))
        self._lanes[job, lane] = task
        task.add_done_callback(lambda done: _forget(self._lanes, (job, lane), done))
        return task

    def do_last(self, job: str, work: Work) -> "asyncio.Task[None]":
        """After everything that was given for this job before."""
        before = [self._last.get(job), *self._of(job).values()]
        task = asyncio.create_task(_after(before, work))
        self._last[job] = task
        task.add_done_callback(lambda done: _forget(self._last, job, done))
        return task

    def busy(self, job: str, lane: str) -> bool:
        return (job, lane) in self._lanes

    def cancel(self, job: str, wanted: Callable[[str], bool]) -> None:
        """What goes on in the lanes whose names are wanted."""
        for lane, task in self._of(job).items():
            if wanted(lane):
                task.cancel()

    async def close(self) -> None:
        """Cancel what goes on, and wait until it has ended."""
        tasks = [*self._lanes.values(), *self._last.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, job: str) -> dict[str, "asyncio.Task[None]"]:
        return {lane: task for (owner, lane), task in self._lanes.items() if owner == job}


async def _after(before: "list[asyncio.Task[None] | None]", work: Work) -> None:
    if waited_for := [task for task in before if task is not None]:
        await asyncio.wait(waited_for)
    try:
        await work()
    except Exception:  # a bug, and the others must go on
        log.exception("a bug: a piece of work was not done")


def _forget(tasks: dict[_K, "asyncio.Task[None]"], key: _K, done: "asyncio.Task[None]") -> None:
    if tasks.get(key) is done:
        del tasks[key]
