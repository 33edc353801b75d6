"""Elastic training: states that survive changes of the world, and the loop that runs them.

`run` calls the training function again after each change, as Horovod does; what is different is
what it finds. Nothing is rolled back as long as some survivor has the newest state: the states of
all are compared by a version, and whoever lacks the newest receives it. Where a state cannot say
how far it is, the last commit counts. A change that was planned is due at the same commit() or
check_host_updates() on every rank, without any message between them.
"""

import copy
import functools
import queue
import sys
from collections.abc import Callable, Sequence
from enum import IntFlag
from typing import Any

from midflight.compat.horovod.common import process_sets
from midflight.compat.horovod.common.exceptions import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidRequest,
)
from midflight.compat.horovod.engine.process import PROCESS
from midflight.errors import GivenUp
from midflight.runtime.membership.standing import Change
from midflight.runtime.state.claims import NOTHING


class HostUpdateResult(IntFlag):
    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """Something that is kept through changes of the world. Subclasses say how."""

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
    ) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """To be called after each change, before the states are exchanged, in this order."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        while not self._host_messages.empty():
            self._host_messages.get_nowait()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """For programs that find changes out by themselves: the next check raises."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Keep a copy of the state, and look whether the world changes here."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises if the world changes here; the same on every rank."""
        self._check_messages()
        if not PROCESS.ready:
            return
        standing = PROCESS.standing
        if not standing.boundary():
            return
        if not standing.planned:
            raise HorovodInternalError("a rank was lost")
        raise HostsUpdatedInterrupt(skip_sync=not standing.newcomers_come)

    def _check_messages(self) -> None:
        before, result = self._last_updated_timestamp, HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, update = self._host_messages.get_nowait()
            self._last_updated_timestamp = max(self._last_updated_timestamp, timestamp)
            result |= HostUpdateResult(update)
        if self._last_updated_timestamp > before:
            raise HostsUpdatedInterrupt(skip_sync=result == HostUpdateResult.removed)

    def save(self) -> None:
        raise NotImplementedError

    def restore(self) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        """After each change; nothing by default."""

    def version(self) -> int | None:
        """How far the live state is, comparable between ranks; None: only commits count."""
        return None


class ObjectState(State):
    """Plain attributes."""

    def __init__(
        self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved_state: dict[str, Any] = kwargs
        self._set_attrs()
        self._commits = 0
        self._saved_state = copy.deepcopy(kwargs)

    def save(self) -> None:
        self._saved_state = copy.deepcopy(self._live())
        self._commits += 1

    def restore(self) -> None:
        self._set_attrs()

    def sync(self) -> None:
        """Everybody's values become those of the rank that is furthest, as they are now."""
        if self._saved_state:
            root = take_root()
            live = self._live()
            assert self._bcast_object is not None
            live = self._bcast_object(live, root_rank=root) if root else self._bcast_object(live)
            self._saved_state = live
            self._set_attrs()

    def _live(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._saved_state}

    def _set_attrs(self) -> None:
        for name, value in copy.deepcopy(self._saved_state).items():
            setattr(self, name, value)


_holds_state = False  # this member has taken part in an exchange of states
_change: Change | None = None  # the last one, until the states have been exchanged after it


def take_change() -> Change | None:
    """The change after which this is the first exchange of states; None: somebody just asks."""
    global _change
    change, _change = _change, None
    return change


def take_root() -> int:
    change = take_change()
    return change.root if change is not None else 0


def run_fn(func: Callable[..., Any], reset: Callable[..., Any]) -> Callable[..., Any]:
    """Run `func(state, ...)` again after each change; `reset(state)` enters the next world."""

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        global _holds_state
        skip_sync, due = False, False
        while True:
            try:
                if due:  # somebody may be lost while the new world is set up, too
                    reset(state)
                    skip_sync = _states_agree() if _change is not None else skip_sync
                    state.on_reset()
                else:
                    begin(state)
                if not skip_sync:
                    state.sync()
                _holds_state = True
                return func(state, *args, **kwargs)
            except InvalidRequest:
                raise  # starting over would only repeat it
            except HorovodInternalError as error:
                failed(state, error)
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            due = True

    return wrapper


def _states_agree() -> bool:
    """Whether every rank came here from the same boundary: the same answer on every rank."""
    return _change is not None and not (_change.torn or _change.behind or not _change.planned)


def begin(state: Any) -> None:
    """A newcomer takes its place now, when its model is built and the others need not wait."""
    global _change
    if PROCESS.ready:
        change = PROCESS.arrive()
        if change is not None:
            _change = change
            process_sets.renew()
            state.on_reset()


def failed(state: Any, error: HorovodInternalError) -> None:
    """A rank was lost. What is live is kept if it says how far it is; if not, the last commit."""
    if PROCESS.ready:
        PROCESS.broke(error)
    if not isinstance(state, State) or state.version() is None:
        state.restore()


def _version(state: Any) -> int:
    """How far this member is, for the others: newcomers are nowhere."""
    if not _holds_state:
        return NOTHING
    version = state.version() if isinstance(state, State) else None
    return int(getattr(state, "_commits", 0)) if version is None else version


def reset(state: Any) -> None:
    """Go over to the next world."""
    global _change
    try:
        _change = PROCESS.change(_version(state))
    except GivenUp as error:
        print(f"horovod: the job has ended: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    process_sets.renew()
