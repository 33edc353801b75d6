"""Moves bytes from one member to another over a process group, in one direction.

Both sides add the same number of bytes in the same order and then finish; how they are cut into
messages follows from that alone, so nothing is negotiated. Memory of a kind that the group carries
(gloo: CPU, NCCL: CUDA) goes straight from where it lies to where it belongs, all of it posted
before any of it is waited for. Other memory is staged through a few buffers that it passes in turn:
pinned host memory for CUDA over gloo, a little device memory for CPU over NCCL. A peer that is gone
shows as the RuntimeError of the group. With NCCL, whose works only put streams in order, the device
is waited for, and an aborted transfer ends like any other: the caller asks whether it was cut.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from midflight.runtime import torch_private

MESSAGE = 8 << 20  # bytes; from 1 MiB up gloo is as fast as it gets
STAGES = 4
_moved = 0  # bytes, in all transfers of this process


def bytes_moved() -> int:
    """Grows as long as work on a state comes on; told with the heartbeats."""
    return _moved


def note_moved(nbytes: int) -> None:
    """A state was read or written, but not sent: whoever waits for that may wait longer."""
    global _moved
    _moved += nbytes


def _await(work: Any, memory: Tensor) -> None:
    """Until it is moved, which the work of NCCL does not say, but the device; then it counts."""
    global _moved
    work.wait()
    wait_for_device(memory.device)
    _moved += memory.nbytes


class Group(Protocol):
    """What is used of a torch.distributed ProcessGroup, or of a bare backend such as gloo's."""

    def send(self, tensors: list[Tensor], dst: int, tag: int, /) -> Any: ...
    def recv(self, tensors: list[Tensor], src: int, tag: int, /) -> Any: ...


class _Message(NamedTuple):
    """One of several that are under way at a time."""

    tag: int
    size: int
    memory: Tensor | None  # None: it passes through a stage
    move: Callable[[Tensor], None] | None = None  # how it gets in there or out


class Channel:
    """Bytes to or from one peer, in messages tagged `first_tag`, `first_tag + 1`, ..."""

    def __init__(
        self,
        group: Group,
        peer: int,
        verb: Literal["send", "recv"],
        first_tag: int,
        pace: Callable[[int], None] | None = None,
    ) -> None:
        """`pace`: called with the bytes of each message that is through; it may take its time."""
        self._pace = pace
        self._sends = verb == "send"
        self._transport = group.send if self._sends else group.recv
        self._carried = carried(group)
        self._peer = peer
        self._tag = first_tag
        self._posted: list[tuple[Any, Tensor]] = []  # memory has to live until it is through
        self._waiting: list[_Message] = []
        self._after: list[Callable[[], None]] = []
        self._devices: set[torch.device] = set()

    def add(self, memory: Tensor) -> None:
        """More bytes to move, a flat uint8 tensor; they are through when `finish` returns."""
        self._devices.add(memory.device)
        for part in memory.split(MESSAGE) if memory.numel() else ():
            if part.device.type not in self._carried:
                self._stage(part.numel(), self._copy_of(part))
            elif self._pace is not None:
                self._enqueue(part.numel(), part)
            else:
                self._posted.append((self._post(part, self._tag), part))
                self._tag += 1

    def add_together(self, tensors: list[Tensor]) -> None:
        """Tensors of one dtype and kind of device that travel as one message, MESSAGE at most."""
        size = sum(tensor.nbytes for tensor in tensors)
        if tensors[0].device.type == _stage_kind(self._carried):
            self._stage(size, lambda stage: _copy_together(stage, tensors, self._sends))
            return
        flat = torch.empty(size, dtype=torch.uint8, device=tensors[0].device)
        if self._sends:
            _copy_together(flat, tensors, into_flat=True)
        else:
            self._after.append(lambda: _copy_together(flat, tensors, into_flat=False))
        self.add(flat)

    def push(self) -> None:
        """Have all that was added so far on its way before anything that is added later."""
        if not self._waiting:
            return
        stages = take_stages(self._carried)
        under_way: deque[tuple[Any, Tensor, _Message]] = deque()
        for number, message in enumerate(self._waiting):
            if len(under_way) == STAGES:
                self._complete(*under_way.popleft())
            memory = message.memory
            if memory is None:
                memory = stages[number % STAGES][: message.size]
            if self._sends and message.move is not None:
                message.move(memory)
            under_way.append((self._post(memory, message.tag), memory, message))
        for passing in under_way:
            self._complete(*passing)
        self._waiting.clear()
        leave_stages(self._carried, stages)

    def finish(self) -> None:
        """Wait until all that was added has been sent, or lies where it belongs."""
        self.push()
        for work, memory in self._posted:
            _await(work, memory)
        for action in self._after:
            action()
        for device in self._devices:
            wait_for_device(device)
        self._posted.clear()
        self._after.clear()

    def take(self, size: int) -> bytes:
        """Wait for so many bytes."""
        memory = torch.empty(size, dtype=torch.uint8)
        self.add(memory)
        self.finish()
        return tensor_to_bytes(memory)

    def _post(self, memory: Tensor, tag: int) -> Any:
        return self._transport([memory], self._peer, tag)

    def _stage(self, size: int, move: Callable[[Tensor], None]) -> None:
        self._enqueue(size, None, move)

    def _enqueue(
        self, size: int, memory: Tensor | None, move: Callable[[Tensor], None] | None = None
    ) -> None:
        self._waiting.append(_Message(self._tag, size, memory, move))
        self._tag += 1

    def _copy_of(self, part: Tensor) -> Callable[[Tensor], None]:
        if self._sends:
            return lambda stage: _copy(stage, part)
        return lambda stage: _copy(part, stage)

    def _complete(self, work: Any, memory: Tensor, message: _Message) -> None:
        _await(work, memory)
        if not self._sends and message.move is not None:
            message.move(memory)
        if self._pace is not None:
            self._pace(message.size)


def wait_for_device(device: torch.device) -> None:
    """Until it has done what was ordered so far."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _copy(target: Tensor, source: Tensor) -> None:
    target.copy_(source)


@torch.no_grad()
def _copy_together(flat: Tensor, tensors: list[Tensor], into_flat: bool) -> None:
    places = torch_private.unflatten(flat.view(tensors[0].dtype), tensors)
    if into_flat:
        torch_private.copy_each(places, tensors)
    else:
        torch_private.copy_each(tensors, places)


def carried(group: Group) -> frozenset[str]:
    """The kinds of devices whose memory the group can send as it is."""
    kinds = set()
    for kind in ("cpu", "cuda"):
        name = torch_private.backend_name(group, kind)
        if name is not None and (name == "nccl") == (kind == "cuda"):
            kinds.add(kind)
    return frozenset(kinds)


def _stage_kind(carried: frozenset[str]) -> str:
    return "cpu" if "cpu" in carried else "cuda"


_idle_stages: dict[frozenset[str], list[list[Tensor]]] = {}


def take_stages(carried: frozenset[str]) -> list[Tensor]:
    """Memory to send from and receive into; kept for the next time, as making it is slow."""
    idle = _idle_stages.setdefault(carried, [])
    if idle:
        return idle.pop()
    kind = _stage_kind(carried)
    pinned = kind == "cpu" and torch.cuda.is_initialized()
    stages = torch.empty(STAGES, MESSAGE, dtype=torch.uint8, device=kind, pin_memory=pinned)
    return list(stages)


def leave_stages(carried: frozenset[str], stages: list[Tensor]) -> None:
    _idle_stages.setdefault(carried, []).append(stages)


def warm(group: Group, sizes: Sequence[int]) -> None:
    """Have stages ready, and touched as far as messages of these sizes reach into them."""
    kinds = carried(group)
    stages = take_stages(kinds)
    for number, stage in enumerate(stages):
        stage[: max(sizes[number::STAGES], default=0)].zero_()
    leave_stages(kinds, stages)


def bytes_to_tensor(content: bytes) -> Tensor:
    if not content:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def tensor_to_bytes(memory: Tensor) -> bytes:
    """Without numpy, which a training image need not have."""
    return ctypes.string_at(memory.data_ptr(), memory.numel()) if memory.numel() else b""
