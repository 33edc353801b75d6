"""Code that blocks, on the simulated loop: a thread of its own, which never runs beside the loop.

`run` awaits such code, `wait` is what it blocks in: there the thread hands over to the loop and
stands still until what it waits for has happened. One of the two runs at any time, so a seed stays
one story. When the process has died, the thread is unwound at the place where it stands.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Wanted = Coroutine[Any, Any, Any]


class _Killed(BaseException):
    """Nobody will ever go on with this thread's work."""


class _Thread:
    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._own_turn, self._loops_turn = threading.Semaphore(0), threading.Semaphore(0)
        self._wanted: Wanted | None = None  # what it waits for
        self._answer: Callable[[], Any] = lambda: None
        self._result: Any = None
        self._error: BaseException | None = None
        self._killed = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._main,), daemon=True)
        self._thread.start()

    def go_on(self, answer: Callable[[], Any] = lambda: None) -> Wanted | None:
        """Let it run until it waits for something; None: it has come to its end."""
        self._answer, self._wanted = answer, None
        self._own_turn.release()
        self._loops_turn.acquire()
        return self._wanted

    def result(self) -> Any:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result

    def kill(self) -> None:
        self._killed = True
        if self._thread.is_alive():
            self._own_turn.release()
            self._thread.join()

    def wait(self, wanted: Wanted) -> Any:
        if not self._killed:
            self._wanted = wanted
            self._loops_turn.release()
            self._own_turn.acquire()
        if self._killed:
            wanted.close()
            raise _Killed
        return self._answer()

    def _main(self) -> None:
        _OWN.thread = self
        asyncio._set_running_loop(self._loop)
        self._own_turn.acquire()
        try:
            if not self._killed:
                self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - whoever awaits it gets it
            self._error = error
        self._loops_turn.release()


class _Own(threading.local):
    thread: _Thread


_OWN = _Own()


async def run(call: Callable[[], T]) -> T:
    """The result of a function that blocks in `wait`."""
    thread = _Thread(call)
    try:
        wanted = thread.go_on()
        while wanted is not None:
            wanted = thread.go_on(await _outcome(wanted))
        result: T = thread.result()
        return result
    finally:
        thread.kill()


async def _outcome(wanted: Wanted) -> Callable[[], Any]:
    try:
        value = await wanted
    except Exception as error:  # noqa: BLE001 - raised where it was waited for
        return lambda error=error: _raise(error)  # type: ignore[misc]
    return lambda: value


def _raise(error: Exception) -> None:
    raise error


def wait(wanted: Coroutine[Any, Any, T]) -> T:
    """Called by code that `run` runs: blocks until this has happened."""
    result: T = _OWN.thread.wait(wanted)
    return result


class Event:
    """In the place of `threading.Event`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def wait(self, seconds: float) -> bool:
        return wait(self._wait(seconds))

    async def _wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._event.wait()
        except TimeoutError:
            return False
