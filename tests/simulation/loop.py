"""An asyncio loop with a clock of its own, and the processes that run on it.

Time passes only when nothing is left to be done at the present moment. Every callback belongs to a
process (`PROCESS`, inherited by what it schedules) or to none, which is the machinery itself. The
callbacks of a stopped process are kept until it is continued, those of a dead one are dropped.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from typing import Any

START = 1000.0  # seconds on the simulated clock when a simulation begins
TOO_MANY_EVENTS = 50_000  # at one moment

PROCESS: contextvars.ContextVar["Process"] = contextvars.ContextVar("PROCESS")


class Stalled(Exception):
    """Nothing is left that could ever happen, or too much does."""


class Process:
    """Something with an id that can be stopped, continued and killed."""

    def __init__(self, loop: "SimLoop", name: str, host: str) -> None:
        loop.last_pid += 1
        self.pid = loop.last_pid
        self.name = name
        self.host = host
        self.loop = loop
        self.code: int | None = None  # None: it is alive
        self.stopped = False
        self.lives: int | None = None  # so many callbacks until it is killed
        self.ended: asyncio.Future[int] = loop.create_future()
        self.on_end: list[Callable[[Process], None]] = []
        self.on_terminate: Callable[[], None] | None = None  # a handler of SIGTERM
        self.told_to_end = False  # by SIGTERM
        self.slot = ""  # of its host, if it is a member
        self.parent = PROCESS.get(self)  # whoever started it
        self.kept: list[asyncio.Handle] = []
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)

    @property
    def alive(self) -> bool:
        return self.code is None

    def start(self, main: Callable[[], Coroutine[Any, Any, int]]) -> None:
        self.loop.call_soon(lambda: self._begin(main), context=self.context)

    def _begin(self, main: Callable[[], Coroutine[Any, Any, int]]) -> None:
        task = self.loop.create_task(main())
        task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[int]") -> None:
        if task.cancelled():
            self.end(1)
        elif (error := task.exception()) is not None:
            self.loop.raised.append((self.name, error))
            self.end(1)
        else:
            self.end(task.result())

    def end(self, code: int) -> None:
        """However it came: from here on nothing of it runs."""
        if self.code is None:
            self.code = code
            self.kept.clear()
            for call in self.on_end:
                call(self)
            if not self.ended.done():  # whoever waited for it was cancelled
                self.ended.set_result(code)

    def stop(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        if self.stopped:
            self.stopped = False
            kept, self.kept = self.kept, []
            self.loop.take_back(kept)

    def terminate(self) -> None:
        self.told_to_end = True
        if self.alive and self.on_terminate is not None:
            self.loop.call_soon(self.on_terminate, context=self.context)
        elif self.alive:
            self.end(-15)
        self.resume()


def _hold_back(handle: asyncio.Handle, context: contextvars.Context, loop: "SimLoop") -> bool:
    """Whether this callback must not run now."""
    loop.events += 1
    process = context.get(PROCESS)
    if process is None:
        return False
    if process.code is not None:
        return True
    if process.stopped:
        process.kept.append(handle)
        return True
    if process.lives is not None:
        if process.lives == 0:
            process.end(-9)
            return True
        process.lives -= 1
    return False


class _Handle(asyncio.Handle):
    __slots__ = ()
    _context: contextvars.Context
    _loop: "SimLoop"

    def _run(self) -> None:
        if not _hold_back(self, self._context, self._loop):
            super()._run()


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ()
    _context: contextvars.Context
    _loop: "SimLoop"

    def _run(self) -> None:
        if not _hold_back(self, self._context, self._loop):
            super()._run()


class _Selector:
    """Where a real loop would wait for sockets, this one lets time pass."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self._last = 0  # event before time went on

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stalled("nothing is left that could happen")
        loop = self._loop
        if timeout > 0:
            loop.now += timeout
            self._last = loop.events
        elif loop.events - self._last > TOO_MANY_EVENTS:
            raise Stalled("somebody is busy without an end")
        return []


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.wall = 1.7e9 - START  # what is added to make the wall clock
        self.events = 0
        self.last_pid = 100
        self.raised: list[tuple[str, BaseException]] = []  # what nobody has caught, by whom
        self.call_delay: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
        self.network: Any = None
        self._tasks: list[asyncio.Task[Any]] = []  # so that a dead process's are not collected
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._on_error)

    def _make_task(self, loop: Any, coro: Any, **more: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(coro, loop=loop, **more)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > 4096:
            self._tasks = [task for task in self._tasks if not task.done()]
        return task

    def _on_error(self, loop: Any, context: dict[str, Any]) -> None:
        if (error := context.get("exception")) is not None:
            self.raised.append((PROCESS.get().name if PROCESS.get(None) else "-", error))

    def end(self) -> None:
        """Close whatever is left; processes must be dead by now."""
        for task in self._tasks:
            try:
                task.get_coro().close()
            except (RuntimeError, ValueError):
                continue  # it would wait for something in its last words
        self._tasks.clear()
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def take_back(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(h for h in handles if not h.cancelled())  # type: ignore[attr-defined]

    # --- what asyncio asks of a loop ---------------------------------------------------------

    def time(self) -> float:
        return self.now

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits."""

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """A call in a thread: it is made after a while, and its outcome is known later still."""
        future = self.create_future()
        before, after = self.call_delay()

        def make_call() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
                self.call_later(after, _settle, future, None, error)
            else:
                self.call_later(after, _settle, future, result, None)

        self.call_later(before, make_call)
        return future

    def create_connection(self, *args: Any, **_: Any) -> Any:
        return self.network.connect(*args)

    async def create_server(self, *args: Any, **_: Any) -> Any:
        return self.network.listen(*args)


def _settle(future: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
