"""This process as Horovod sees it: initialised or not, its place in the world, its engine.

There is one of these per process. `init` takes the member's place (a newcomer's place is taken
later, when its training function begins, so that nobody waits for it to build its model), `change`
goes over to the next world, and the end of the program says goodbye, so that the others do not take
it for a loss.
"""

import atexit
import contextlib
import itertools
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import torch

from midflight import leaving
from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine import talk
from midflight.compat.horovod.engine.alone import Alone
from midflight.compat.horovod.engine.collectives import Work
from midflight.compat.horovod.engine.engine import Engine, Settings
from midflight.compat.horovod.engine.requests import GLOBAL_SET, Request
from midflight.compat.horovod.engine.sets import Sets
from midflight.compat.horovod.engine.timeline import Timeline
from midflight.errors import MidflightError, WorldChanged
from midflight.rundir import read_token
from midflight.runtime.membership.standing import Change, Standing
from midflight.runtime.state.claims import NOTHING

NOT_INITIALISED = "Horovod has not been initialized; use hvd.init()."


class Process:
    def __init__(self) -> None:
        self.settings = Settings.from_env(os.environ)
        self.timeline = Timeline()
        self._standing: Standing | None = None
        self._sets: Sets | None = None
        self._engine: Engine | Alone | None = None
        self.ready = False
        self._handles: dict[int, Work] = {}
        self._numbers = itertools.count(1)
        self._names: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._ended = False
        self._exit_status: Any = None  # what `sys.exit` was last called with
        self._pid = 0  # a forked child must not say goodbye for its parent

    # --- coming and going -------------------------------------------------------------------

    def init(self) -> None:
        if self.ready:
            return
        if self._standing is None:
            self._pid = os.getpid()
            self._standing = Standing(os.environ, _backend())
            atexit.register(self._end)
            self._watch_exit()
        self.ready = True
        if not self._standing.newcomer and not self._standing.arrived:
            self._standing.arrive()
        if self._engine is None:  # after a shutdown it is still there: the world is the same
            self._enter()

    def arrive(self) -> Change | None:
        """A newcomer takes its place. None: this member has had one before."""
        standing = self.standing
        if standing.arrived:
            return None
        change = standing.arrive(NOTHING)
        self._enter()
        return change

    def change(self, version: int) -> Change:
        """Go over to the next world."""
        if self._engine is not None:
            self._engine.retire()
        change = self.standing.change(version)
        self._enter()
        return change

    def _enter(self) -> None:
        """An engine for the present world; if somebody is lost meanwhile, it comes up broken."""
        standing = self.standing
        self._leave()
        self._names.clear()
        self._sets = Sets(standing.group, standing.keys)
        if standing.group.size == 1:
            self._engine = Alone(standing.group, self._sets, self.timeline)
        else:
            self._engine = self._connected(standing, self._sets)
        if self.settings.timeline and standing.rank == 0:
            self.timeline.start(self.settings.timeline)

    def _connected(self, standing: Standing, sets: Sets) -> Engine:
        group = standing.group
        assert standing.env is not None
        secret = read_token(Path(standing.env.token_file))
        lines: dict[int, talk.Line] = {}
        try:
            lines = talk.connect(group, secret, tls=standing.is_encrypted)
        except (WorldChanged, RuntimeError) as error:
            standing.broke(error, group)

        def on_break(error: Exception) -> None:
            standing.broke(error, group)

        return Engine(group, sets, lines, self.settings, self.timeline, on_break)

    def _leave(self) -> None:
        if self._engine is not None:
            self._engine.close()
        if self._sets is not None:
            self._sets.close()
        self._engine = self._sets = None

    def shutdown(self) -> None:
        """Horovod's own: not initialised any more. The member keeps its place for another init."""
        if self.ready:
            self.ready = False
            self.timeline.stop()

    def _watch_exit(self) -> None:
        """Remember with what the program ends: `atexit` does not tell."""
        ending = sys.exit

        def note(status: Any = None) -> NoReturn:
            self._exit_status = status
            ending(status)

        sys.exit = note

    def _end(self) -> None:
        """At the end of the program."""
        if self._ended or self._standing is None or os.getpid() != self._pid:
            return
        self._ended = True
        self.timeline.stop()
        raised = getattr(sys, "last_value", None) is not None  # its traceback was printed
        status = 1 if raised else self._exit_status
        if status not in (None, 0):
            leaving.fail(status if isinstance(status, int) else 1)
            return
        with contextlib.suppress(MidflightError, OSError):
            if self._engine is not None:
                self._engine.say_goodbye()
            self._standing.finish()
        self._standing.group.cut()  # whoever is still in a collective gets out of it
        self._leave()
        self._standing.close()

    # --- where this member stands -----------------------------------------------------------

    @property
    def standing(self) -> Standing:
        if not self.ready or self._standing is None:
            raise ValueError(NOT_INITIALISED)
        return self._standing

    @property
    def sets(self) -> Sets:
        if not self.ready or self._sets is None:
            raise ValueError(NOT_INITIALISED)
        return self._sets

    def broke(self, error: Exception) -> None:
        """The program says that a collective failed; the others have to hear of it."""
        self.standing.broke(error)

    # --- work -------------------------------------------------------------------------------

    def name(self, kind: str, name: str | None, process_set: int | None = GLOBAL_SET) -> str:
        """A name given by the caller, or the next number of its kind in this world and set."""
        if name is not None:
            return f"{kind}.{name}"
        key = f"{kind}.{process_set}"
        self._names[key] += 1
        return f"{kind}.noname.{self._names[key]}"

    def submit(self, work: Work) -> int:
        if not self.ready or self._engine is None:
            raise ValueError(NOT_INITIALISED)
        self._exit_status = None  # the program goes on
        if work.request.process_set != GLOBAL_SET:
            self._check_set(work.request.process_set)
        if any(tensor.is_cuda for tensor in work.tensors):
            work.ready = torch.cuda.Event()
            work.ready.record()
        self._engine.submit(work)
        self._engine.flush()
        with self._lock:
            handle = next(self._numbers)
            self._handles[handle] = work
        return handle

    def _check_set(self, number: int) -> None:
        if self.sets.group(number) is None:
            raise ValueError("this rank is not in the process set, or the set was not added yet")

    def poll(self, handle: int) -> bool:
        work = self._handles.get(handle)
        return work is None or work.done.is_set()

    def synchronize(self, handle: int) -> Any:
        with self._lock:
            work = self._handles.pop(handle, None)
        if work is None:
            return None
        self.wait(work)
        return work.after(work.result) if work.after is not None else work.result

    def wait(self, work: Work) -> None:
        """Until it is done, however it ends: a lost member, or a lost coordinator, ends it."""
        if not work.done.is_set() and self._standing is not None:
            self._standing.waiting = True
            try:
                work.done.wait()
            finally:
                self._standing.waiting = False
        if work.error is not None:
            raise work.error

    def do(self, request: Request) -> Any:
        """Something without tensors, waited for."""
        return self.synchronize(self.submit(Work(request, [], [])))

    def add_set(self, ranks: tuple[int, ...]) -> int:
        name = f"add.{','.join(map(str, ranks))}"
        return int(self.do(Request(name, words.ADD_SET, ranks=ranks)))

    def remove_set(self, ranks: tuple[int, ...]) -> bool:
        name = f"remove.{','.join(map(str, ranks))}"
        return bool(self.do(Request(name, words.REMOVE_SET, ranks=ranks)))


def _backend() -> str:
    return "nccl" if torch.cuda.is_available() and torch.cuda.device_count() > 1 else "gloo"


PROCESS = Process()
