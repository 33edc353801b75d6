"""Asking the training of a job: what it does now, and whether it goes on with another size.

A job that will never have a run is answered for at once; for all others the coordinator of the
job's run answers, through `CoordinatorClient`. `Questions` are those under way.
"""

import asyncio
import logging
from collections.abc import Callable, Container

from midflight.controller.commands import AskResize
from midflight.controller.events import Event, ResizeEnded, ResizeProgressed
from midflight.controller.orders import open_requests
from midflight.controller.state import Job
from midflight.coordinator.client import CoordinatorClient, Dial, Patience
from midflight.errors import MidflightError
from midflight.protocol.messages import ResizeRequested, Status

NO_TRAINING = (
    "the job has no elastic training: its command does not use midflight run or horovodrun"
)

log = logging.getLogger("midflight.loop")


async def status(dial: Dial) -> Status | None:
    """What the coordinator says now, None if nobody answers soon."""
    try:
        return await CoordinatorClient(dial).status()
    except MidflightError:
        return None


async def resize(
    dial: Dial, order: AskResize, progress: Callable[[str], None], run_expected: bool = True
) -> tuple[bool, str]:
    """Whether the training has done as asked, and its words for that.

    `run_expected`: there is a run, or the command is one that starts it, so it is waited for. Else
    one may be there all the same: of torchruns, of which those that end leave by themselves.
    """
    if not run_expected and (order.leaving or await status(dial) is None):
        return True, NO_TRAINING
    if order.members is None and not order.leaving:
        return True, "none of its members has to leave"
    asked = (order.members, 0, 0, (), order.timeout, order.request, order.leaving)
    patience = Patience(reach=order.timeout, asked_before=order.again)
    try:
        ended = await CoordinatorClient(dial).resize(ResizeRequested(*asked), progress, patience)
    except MidflightError as error:
        return False, str(error)
    return ended.ok, ended.detail


class Questions:
    """What the trainings of jobs are being asked: each request once, and its answer is told."""

    def __init__(self, tell: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._tasks: dict[str, dict[str, asyncio.Task[None]]] = {}  # by job and request

    def of(self, key: str) -> Container[str]:
        """Also those whose answer was told, as long as the job waits for it."""
        return self._tasks.get(key, {}).keys()

    def ask(self, order: AskResize, dial: Dial, run_expected: bool) -> None:
        task = asyncio.create_task(self._ask(order, dial, run_expected))
        self._tasks.setdefault(order.key, {})[order.request] = task

    def keep(self, job: Job) -> None:
        """Those that the job waits for, and no others."""
        asked, wanted = self._tasks.get(job.key, {}), open_requests(job)
        for request in [each for each in asked if each not in wanted]:
            asked.pop(request).cancel()

    def drop(self, key: str) -> None:
        for task in self._tasks.pop(key, {}).values():
            task.cancel()

    def close(self) -> None:
        for key in list(self._tasks):
            self.drop(key)

    async def _ask(self, order: AskResize, dial: Dial, run_expected: bool) -> None:
        key, operation = order.key, order.operation

        def progress(line: str) -> None:
            self._tell(ResizeProgressed(self._clock(), key, operation, line))

        try:
            ok, detail = await resize(dial, order, progress, run_expected)
        except Exception as error:  # whatever it is, the operation must come to an end
            log.exception("a bug: %s could not be asked", operation)
            ok, detail = False, f"a bug: {error!r}"
        self._tell(ResizeEnded(self._clock(), key, operation, ok, detail))
