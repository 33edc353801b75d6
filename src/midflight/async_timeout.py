"""`asyncio.timeout` where Python has it, and a stand-in on 3.10, which images may have."""

import asyncio
from typing import TYPE_CHECKING, Any


class Timeout:
    """`asyncio.timeout`, but a cancellation from elsewhere just when the time is up is lost."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._expired = False
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> "Timeout":
        task = asyncio.current_task()
        assert task is not None
        if self._seconds is not None:
            later = asyncio.get_running_loop().call_later
            self._timer = later(max(self._seconds, 0.0), self._expire, task)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._expired and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self, task: "asyncio.Task[Any]") -> None:
        self._expired = True
        task.cancel()


if TYPE_CHECKING:
    timeout = Timeout
else:
    timeout = getattr(asyncio, "timeout", Timeout)
