"""The stream of a shadow join: the rest of the state, on connections and in threads of its own.

The giver copies the tensors as they are at the switch, and sends the copies while it trains. The
newcomer receives them where they belong, then replays the steps that were queued meanwhile, until
it has caught up. Both work on a CUDA stream of their own. Whatever fails here fails the stream,
never the training: then the newcomer has no state, and receives it in the blocking way.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from midflight.errors import WorldChanged
from midflight.protocol.world import World
from midflight.runtime import torch_private
from midflight.runtime.group.keystore import KeyLine
from midflight.runtime.group.process_group import Group
from midflight.runtime.shadow.replay import Recorded, Twin, record
from midflight.runtime.state.channel import Channel
from midflight.runtime.state.layout import is_dense, memory_of, slot_of
from midflight.runtime.state.room import available_bytes, has_room

TAG = 1
YIELDING = 0.25  # of the time; what the stream takes while members average their gradients
LONGEST_REST = 0.25  # seconds
ROOMY = 0.25  # of the newcomer's room for queued steps; beyond that the stream yields no more


@dataclass(frozen=True)
class Route:
    """Between whom a stream runs, by their ranks in a world."""

    world: World
    giver: int
    newcomer: int

    def group(self, rank: int) -> Group:
        """A group of the two, in which the giver has rank 0; not connected yet."""
        members = tuple(self.world.members[one] for one in (self.giver, self.newcomer))
        pair = World(self.world.generation, members)
        name = self.world.names[rank]
        return Group(pair, name, "gloo", scope=f"shadow-{self.newcomer}")


class Copies:
    """Memory for copies of tensors, made ready while all train: its first touch is the slow part.

    Only ordinary memory is; a device has it at once, and might have no room for both.
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._wanted = [tensor for tensor in tensors if tensor.is_cpu]
        self._room: list[Tensor] = []

    def touch(self) -> None:
        """Make it; from another thread."""
        self._room = [torch.zeros_like(tensor) for tensor in self._wanted]
        self._wanted = []

    def release(self) -> None:
        """The change is not made."""
        self._room = []

    @torch.no_grad()
    def of(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The tensors as they are now; on the device, or in host memory if that has no room."""
        room, self._room = self._room, []
        dense = [t.detach() if is_dense(t) else t.detach().contiguous() for t in tensors]
        if [slot_of(tensor) for tensor in room] == [slot_of(tensor) for tensor in dense]:
            torch_private.copy_each(room, dense)
            return room
        roomy = has_room(dense)
        return [tensor.clone() if roomy or tensor.is_cpu else tensor.cpu() for tensor in dense]


class Pace:
    """How fast a stream may go: within a limit, and yielding to the training's collectives."""

    def __init__(self, is_busy: Callable[[], bool], limit: float | None = None) -> None:
        """`is_busy`: whether such a collective is under way. `limit`: in bytes per second."""
        self._is_busy = is_busy
        self._limit = limit
        self._since = 0.0
        self._at_full_speed = threading.Event()
        self._over = threading.Event()

    def begin(self) -> None:
        self._since = time.monotonic()

    def hurry(self) -> None:
        """Yield no more. The limit holds."""
        self._at_full_speed.set()

    def end(self) -> None:
        """Rest no more."""
        self._at_full_speed.set()
        self._over.set()

    def __call__(self, nbytes: int) -> None:
        """After a part of the stream: rest as long as it has to."""
        took = time.monotonic() - self._since
        if self._is_busy():
            self._at_full_speed.wait(min(took * (1 / YIELDING - 1), LONGEST_REST))
        if self._limit is not None:
            took = time.monotonic() - self._since
            self._over.wait(max(0.0, nbytes / self._limit - took))
        self._since = time.monotonic()


class Giver:
    """Sends these copies of tensors to the newcomer."""

    def __init__(self, route: Route, line: KeyLine, copies: Sequence[Tensor], pace: Pace) -> None:
        self._group = route.group(route.giver)
        self._copies = copies
        self._pace = pace
        self.failed = False
        _start(lambda: self._send(line))

    def _send(self, line: KeyLine) -> None:
        try:
            self._group.connect(line)
            self._pace.begin()
            self._group.waits.call(lambda: _move(self._group, 1, "send", self._copies, self._pace))
        except (RuntimeError, WorldChanged):
            self.failed = True
            self._group.cut()
        self._copies = []

    def hurry(self) -> None:
        """The newcomer runs out of room."""
        self._pace.hurry()

    def cut(self) -> None:
        self._pace.end()
        self._group.cut()

    def close(self) -> None:
        self.cut()
        self._group.retire()


class CatchUp:
    """A newcomer's way from the state of the switch to that of the step under way."""

    def __init__(
        self,
        route: Route,
        line: KeyLine,
        tensors: Sequence[Tensor],
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        """`tensors`: where the optimizers have what is to be received."""
        self._group = route.group(route.newcomer)
        self._tensors = [tensor.data for tensor in tensors]  # whose changes count as nobody's
        self._optimizers = optimizers
        self._twins = [Twin(optimizer) for optimizer in optimizers]
        self._changed = threading.Condition()
        self._queue: deque[_Entry] = deque()  # the first of them is being replayed
        self._received = False
        self._failed = False
        self._closed = False
        self._is_cramped = False
        self._at_work = threading.Lock()  # while the state is written
        self._limit = _queue_limit(tensors)
        _start(lambda: self._run(line))

    def queue(self) -> None:
        """Instead of the optimizers' step: it will be taken later."""
        with self._changed:
            recorded = [record(optimizer) for optimizer in self._optimizers]
            self._queue.append(_Entry(recorded, _now_on_device()))
            held = sum(one.nbytes for entry in self._queue for one in entry.steps)
            self._failed = self._failed or held > self._limit
            self._is_cramped = held > self._limit * ROOMY
            self._changed.notify_all()

    @property
    def failed(self) -> bool:
        """The state will not come, or there is no room for more steps."""
        return self._failed

    @property
    def in_a_hurry(self) -> bool:
        """Whether steps come faster than there is room for, should the stream go on like this."""
        return self._is_cramped and not self._received

    @property
    def is_close(self) -> bool:
        """Whether `finish` takes no longer than a step of the optimizer."""
        return self._received and len(self._queue) <= 1

    def await_close(self) -> None:
        """Until it is close, or has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_close or self._failed)

    def finish(self) -> bool:
        """Wait until all is replayed; False: this member has no state."""
        with self._changed:
            if not self._received:
                return False
            self._changed.wait_for(lambda: not self._queue or self._failed)
            if self._failed:
                return False
        for twin in self._twins:
            twin.finish()
        return True

    def cut(self) -> None:
        self._group.cut()

    def close(self) -> None:
        """Nothing is written to the state any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._group.cut()
        with self._at_work:
            self._group.retire()

    def _run(self, line: KeyLine) -> None:
        try:
            self._group.connect(line)
            with self._at_work:
                if not self._closed:
                    self._group.waits.call(lambda: _move(self._group, 0, "recv", self._tensors))
            with self._changed:
                self._received = True
                self._changed.notify_all()
            self._replay()
        except Exception:  # noqa: BLE001 - an optimizer may raise anything; there is no state then
            with self._changed:
                self._failed = True
                self._changed.notify_all()

    def _replay(self) -> None:
        while (entry := self._next()) is not None:
            with self._at_work:
                if not self._closed:
                    entry.replay(self._twins)
            with self._changed:
                self._queue.popleft()
                self._changed.notify_all()

    def _next(self) -> "_Entry | None":
        """The oldest step that was not replayed, as soon as there is one; None: closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            return None if self._closed else self._queue[0]


@dataclass(frozen=True)
class _Entry:
    """A step of all optimizers, and when the device has its gradients."""

    steps: Sequence[Recorded]
    ready: torch.cuda.Event | None

    def replay(self, twins: Sequence[Twin]) -> None:
        if self.ready is not None:
            self.ready.wait()
        for twin, step in zip(twins, self.steps, strict=True):
            twin.step(step)
        if self.ready is not None:  # the gradients' memory is the training stream's again
            torch.cuda.current_stream().synchronize()


def _start(work: Callable[[], None]) -> None:
    """In a thread whose copies do not wait for the kernels of the training, only for past ones."""
    on_device = _side_stream()

    def run() -> None:
        with on_device:
            work()

    threading.Thread(target=run, name="midflight-shadow", daemon=True).start()


def _side_stream() -> AbstractContextManager[None]:
    if not torch.cuda.is_initialized():
        return nullcontext()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(side)


def _now_on_device() -> torch.cuda.Event | None:
    if not torch.cuda.is_initialized():
        return None
    event = torch.cuda.Event()
    event.record()
    return event


def _move(
    group: Group,
    peer: int,
    verb: Literal["send", "recv"],
    tensors: Sequence[Tensor],
    pace: Pace | None = None,
) -> None:
    channel = Channel(group.pg, peer, verb, TAG, pace)
    for tensor in tensors:
        channel.add(memory_of(tensor))
    channel.finish()


def _queue_limit(tensors: Sequence[Tensor]) -> int:
    """Bytes: half of what is free where the gradients are."""
    device = tensors[0].device if tensors else torch.device("cpu")
    return available_bytes(device) // 2
