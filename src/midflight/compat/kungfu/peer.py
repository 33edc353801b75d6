"""Peer: this training process as a KungFu program knows it, over Midflight's membership.

A script calls collectives, and `resize` once a step: that call is the boundary at which planned
changes happen, once all members have heard of them. When somebody is lost, whatever call notices
it goes over to the next world and is done again there, so that scripts see no error. State that
was registered with `hold` goes to newcomers, and to members that missed a step (`settlement`). All
of it happens in the calling thread.
"""

import atexit
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from midflight.compat.kungfu.settlement import STEPS, Place, Row, Settled, settle
from midflight.compat.kungfu.transfer import carry
from midflight.errors import GivenUp, WorldChanged
from midflight.protocol.environment import WorkerEnv
from midflight.runtime.group.process_group import Group, is_communication_error
from midflight.runtime.group.reduction import all_reduce
from midflight.runtime.membership.standing import Standing

FURTHEST = 100_000  # boundaries by which a planned change may lie ahead
KEPT = 8 << 20  # bytes; the result of a larger collective is not kept for those who missed it


Action = Callable[[Group, list[Tensor]], None]  # communicates, in place; never in a world of one


class Held(Protocol):
    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class Register:
    """The state that was registered, and what was received before it was.

    A newcomer may be in the world, and hold the others' state, before its script has built the
    model: then the state waits here, by name, until the object is registered.
    """

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._received: dict[str, Any] = {}

    def hold(self, name: str, held: Held) -> None:
        self._held[name] = held
        if name in self._received:
            held.load_state_dict(self._received.pop(name))

    def state(self) -> dict[str, Any]:
        return {name: dict(held.state_dict()) for name, held in self._held.items()}

    def take_over(self, state: Mapping[str, Any]) -> None:
        for name, found in state.items():
            if name in self._held:
                self._held[name].load_state_dict(found)
            else:
                self._received[name] = found


class Request(Protocol):
    size: int
    refusal: str  # why it will not happen

    def is_open(self, size: int) -> bool:
        """Whether it waits for an answer, in a job of this size."""
        ...


class Peer:
    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.standing = Standing(environ)
        self.detached = False
        self.progress = 0
        self._init_progress = int(environ.get("KUNGFU_INIT_PROGRESS") or 0)
        self.optimizers = 0  # how many have been made
        self._register = Register()
        self._holds = False
        self._steps = self._boundaries = self._calls = 0
        self._counted = 0  # boundaries up to this one were passed with the state taken over
        self._told_at = -1
        self._last: list[Tensor] | None = None  # results of the last call
        self._void = False  # nothing counts before the next boundary
        self.request: Request | None = None  # for another size, by this member
        self.somebody_asks = False  # whether any member's was open at the last boundary

    def _finish(self, failed: bool) -> None:
        """The script has ended: wait for the others, who may need this one's ear."""
        if not self.detached and not failed:
            self._log_steps()
            self.standing.finish()
        self.standing.close()

    # --- where this process stands ----------------------------------------------------------

    def arrive(self) -> None:
        """Be in a world: the first call of anything does it."""
        if self.standing.arrived or self.detached:
            return
        watch_the_end(self._finish)
        self.progress = self._init_progress
        self._enter(Place.ARRIVING, self.standing.arrive)

    @property
    def alone(self) -> bool:
        """Whether nobody has started this process as a member of a job."""
        return self.standing.env is None

    @property
    def environment(self) -> WorkerEnv:
        """Not for a process that is alone."""
        assert self.standing.env is not None
        return self.standing.env

    @property
    def rank(self) -> int:
        self.arrive()
        return self.standing.rank

    @property
    def size(self) -> int:
        self.arrive()
        return self.standing.size

    @property
    def local_rank(self) -> int:
        self.arrive()
        return self.standing.world.local_rank(self._name)

    @property
    def local_size(self) -> int:
        self.arrive()
        return self.standing.world.local_size(self._name)

    @property
    def steps(self) -> int:
        """Completed, of optimizers."""
        return self._steps

    @property
    def void(self) -> bool:
        """Whether what the script does now is left out, as newcomers could not take part in it."""
        return self._void

    @property
    def number(self) -> int:
        """The one in its name, which is never given to another."""
        return int(self._name.lstrip("m"))

    @property
    def _name(self) -> str:
        return "m0" if self.alone else self.environment.member

    # --- boundaries -------------------------------------------------------------------------

    def boundary(self) -> tuple[bool, bool]:
        """(whether the world is another one since the last time, whether this one is out of it)."""
        self.arrive()
        if self._is_out():
            return False, True
        self._void = False
        self._boundaries += 1
        if self._boundaries > self._counted and self._is_due():
            self._enter(Place.BOUNDARY, self.standing.change)
        return self._is_out() or self._boundaries == self._told_at, self._is_out()

    def _is_out(self) -> bool:
        return self.detached

    def _is_due(self) -> bool:
        """Whether a planned change is due here. All must have heard of it, so they ask each other.

        False, too, if somebody was lost meanwhile: then this is another world already.
        """
        self.standing.count()  # told with the heartbeats
        flags = torch.zeros(2, dtype=torch.int64)

        def ask() -> None:
            flags[0] = self.standing.announced
            flags[1] = self.request is None or not self.request.is_open(self.standing.size)
            all_reduce(self.standing.group, flags, "min")

        self.somebody_asks = False
        if not self._tried(Place.BOUNDARY, ask):
            return False
        self.somebody_asks = not flags[1].item()
        if not flags[0].item():
            return False
        self._log_steps()
        return any(self.standing.boundary() for _ in range(FURTHEST))

    def _log_steps(self) -> None:
        """Those of the script; the coordinator counts a boundary or two more for each change."""
        if self.standing.rank == 0 and self._boundaries:
            self.standing.log({STEPS: self._boundaries})

    # --- collectives ------------------------------------------------------------------------

    def call(self, tensors: list[Tensor], action: Action) -> list[Tensor]:
        """Copies of the tensors, after the action; done again in the next world if that must be."""
        self.arrive()
        self._refuse_detached()
        while True:
            results = [tensor.detach().clone() for tensor in tensors]
            mine = self._calls
            if self._void:
                return results
            if self._tried(Place.CALL, partial(self._act, action, results)):
                break
            if self._calls > mine:  # the others had it already
                return self._missed(results)
            self._refuse_detached()
        self._calls += 1
        size = sum(tensor.numel() * tensor.element_size() for tensor in results)
        self._last = [tensor.clone() for tensor in results] if size <= KEPT else None
        return results

    def _act(self, action: Action, tensors: list[Tensor]) -> None:
        if self.standing.group.pg is not None:
            action(self.standing.group, tensors)

    def step(self, action: Callable[[Group], None]) -> bool:
        """The collective of an optimizer's step; it must leave nothing behind if it fails.

        False: leave the step out. Either its result has been taken over, or nobody does it.
        """
        self.arrive()
        self._refuse_detached()
        while not self._void:
            mine = self._steps
            if self._tried(Place.STEP, lambda: action(self.standing.group)):
                self._steps += 1
                return True
            if self.detached or self._steps > mine:
                break
        return False

    def reduce_int(self, number: int, op: str) -> int:
        def action(group: Group, tensors: list[Tensor]) -> None:
            all_reduce(group, tensors[0], op)

        (result,) = self.call([torch.tensor([number], dtype=torch.int64)], action)
        return int(result.item())

    def _tried(self, place: Place, action: Callable[[], None]) -> bool:
        group = self.standing.group
        try:
            with self._waiting():
                action()
                return True
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, group):
                raise
            self.standing.broke(error)
        self._enter(place, self.standing.change)
        return False

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.standing.waiting = True
        try:
            yield
        finally:
            self.standing.waiting = False

    def _missed(self, results: list[Tensor]) -> list[Tensor]:
        if self._last is None:
            raise WorldChanged(
                "a member was lost while a large tensor was on its way, and only some have got it; "
                "keep what is large in the model or the optimizer, which are carried along"
            )
        return [kept.to(own.device) for kept, own in zip(self._last, results, strict=True)]

    def _refuse_detached(self) -> None:
        if self.detached:
            raise GivenUp("this worker has left the cluster: it has nobody to communicate with")

    # --- state ------------------------------------------------------------------------------

    def hold(self, name: str, held: Held) -> None:
        """From now on this is part of the state. A newcomer is given what the others have."""
        self._register.hold(name, held)

    def _state(self) -> dict[str, Any]:
        return {"held": self._register.state(), "last": self._last}

    def _take_over(self, state: dict[str, Any], settled: Settled) -> None:
        newcomer = not self._holds
        self._register.take_over(state["held"])
        self._last = state["last"]
        best = settled.furthest
        self._steps, self._calls, self.progress = best.steps, best.calls, best.progress
        self._counted = best.boundaries
        if newcomer:
            self._boundaries = best.boundaries

    # --- changes of the world ---------------------------------------------------------------

    def _enter(self, place: Place, change: Callable[[], object]) -> None:
        """Go over to the next world, and agree with its members on the state."""
        while True:
            try:
                with self._waiting():
                    change()
            except SystemExit:  # a KungFu script ends by itself
                self.detached = True
                return
            group = self.standing.group
            try:
                with self._waiting():
                    self._agree(group, place)
                return
            except (RuntimeError, WorldChanged) as error:
                if not is_communication_error(error, group):
                    raise
                self.standing.broke(error)
            change = self.standing.change

    def _agree(self, group: Group, place: Place) -> None:
        own = Row(
            int(self._holds), place, self._steps, self._boundaries, self._calls, self.progress
        )
        rows = [Row(*numbers) for numbers in group.gather(own.numbers())]
        settled = settle(rows)
        if any(row.holds for row in rows) and settled.behind:
            state = carry(group, settled.root, self._state() if group.rank == settled.root else {})
            if group.rank in settled.behind:
                self._take_over(state, settled)
        self._holds = True
        self._told_at = settled.told_at
        self._void = settled.void and place in (Place.STEP, Place.CALL)
        if self._void:
            self._boundaries = settled.told_at - 1
        if settled.void:
            self._counted = settled.told_at


def watch_the_end(then: Callable[[bool], None]) -> None:
    """`then` is called when the interpreter ends, with whether the script has failed.

    KungFu's scripts do not say that they are done; they end. An error that nobody catches, and
    `sys.exit` with anything but 0, are failures.
    """
    failed = False
    usual_hook, usual_exit = sys.excepthook, sys.exit

    def hook(kind: Any, value: Any, trace: Any) -> None:
        nonlocal failed
        failed = True
        usual_hook(kind, value, trace)

    def exit_with(status: Any = None, /) -> NoReturn:
        nonlocal failed
        failed = status not in (None, 0)
        usual_exit(status)

    sys.excepthook = hook
    sys.exit = exit_with
    atexit.register(lambda: then(failed))


_peer: Peer | None = None


def peer() -> Peer:
    """The one of this process."""
    global _peer
    if _peer is None:
        _peer = Peer()
    return _peer
