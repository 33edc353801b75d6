"""Waiting for a collective in a way that a cut can end.

Shutting a group's sockets down makes most of gloo's blocked calls fail, but not all: now and then
gloo loses the operation that was in the socket's hands, and whoever waits for it waits for ever.
So the training thread never waits for gloo itself. It waits for a future of ours, which is done
when gloo is done, or when the group is cut; or for a helper thread, which is left behind then.
What gloo never finished is kept alive for ever: destroying it would mean waiting for it.
"""

import ctypes
import itertools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from midflight.errors import WorldChanged


class Waits:
    """The waits of one group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._numbers = itertools.count()
        self._open: dict[
            int, tuple[torch.futures.Future[Tensor], Tensor]
        ] = {}  # somebody waits for these
        self._unfinished: set[int] = set()  # gloo has not come back with these
        self._helpers: list[threading.Thread] = []
        self._watchers: set[threading.Event] = set()  # who waits for a helper
        self.error: Exception | None = None
        self.raised = False  # whether somebody was told of that, or of the cut
        self.met = False  # whether a collective was begun that all wait in; reset at each step

    def future(self, work: Any, value: Tensor) -> torch.futures.Future[Tensor]:
        """A future of `value`, done when `work` is, or at the cut."""
        devices: list[int | str | torch.device] | None = [value.device] if value.is_cuda else None
        own: torch.futures.Future[Tensor] = torch.futures.Future(devices=devices)
        number = next(self._numbers)
        with self._lock:
            self._unfinished.add(number)
            if self._over:
                own.set_result(value)
            else:
                self._open[number] = (own, value)
        work.get_future().add_done_callback(lambda done: self._finished(number, done))
        return own

    def failed(self, error: Exception, value: Tensor) -> torch.futures.Future[Tensor]:
        """In place of a future: the collective did not even begin, and `check` says so."""
        self.error = error
        own: torch.futures.Future[Tensor] = torch.futures.Future()
        own.set_result(value)
        return own

    def _finished(self, number: int, done: Any) -> None:
        try:
            done.value()
        except RuntimeError as error:
            self.error = error
        with self._lock:
            self._unfinished.discard(number)
            entry = self._open.pop(number, None)
        if entry is not None:
            entry[0].set_result(entry[1])

    def wait(self, work: Any, value: Tensor) -> None:
        """Until it is done; raises WorldChanged if it failed or was cut."""
        self.future(work, value).wait()
        self.check()

    def call(self, action: Callable[[], Any]) -> Any:
        """Do something that may block for ever in gloo; raises WorldChanged at the cut.

        It is done on the CUDA stream of the caller. What it comes back with after the cut does
        not count: an aborted NCCL operation comes to its end like a whole one.
        """
        outcome: list[Any] = []
        ready = threading.Event()
        on_stream = _callers_stream()

        def run() -> None:
            try:
                with on_stream:
                    outcome.extend((True, action()))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                outcome.extend((False, error))
            ready.set()

        helper = threading.Thread(target=run, name="midflight-wait", daemon=True)
        with self._lock:
            self._helpers = [thread for thread in self._helpers if thread.is_alive()]
            if self._over:
                raise WorldChanged("the group was cut")
            self._helpers.append(helper)
            self._watchers.add(ready)
            helper.start()
        ready.wait()
        with self._lock:
            self._watchers.discard(ready)
        if not outcome:
            raise WorldChanged("the group was cut")
        ok, result = outcome
        if not ok:
            raise result
        if self._over:
            raise WorldChanged("the group was cut")
        return result

    def check(self) -> None:
        if self._over or self.error is not None:
            self.raised = True
            raise WorldChanged(f"a collective failed: {self.error or 'the group was cut'}")

    def end(self) -> None:
        """The group is cut: nobody waits any longer."""
        with self._lock:
            self._over = True
            waiting, self._open = list(self._open.values()), {}
            watchers, self._watchers = self._watchers, set()
        for own, value in waiting:
            own.set_result(value)
        for ready in watchers:
            ready.set()

    @property
    def are_open(self) -> bool:
        """Whether a collective is under way, as far as the host can tell."""
        return bool(self._open)

    @property
    def stuck(self) -> bool:
        """Whether gloo still has hold of something."""
        with self._lock:
            return bool(self._unfinished) or any(t.is_alive() for t in self._helpers)


def _callers_stream() -> AbstractContextManager[Any]:
    """The stream, and the device, that this thread works on; a new thread has others."""
    if not torch.cuda.is_initialized():
        return nullcontext()
    return torch.cuda.stream(torch.cuda.current_stream())


def keep_for_ever(item: Any) -> None:
    """Never let this object be destroyed, not even at the interpreter's end."""
    if item is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))
