"""Where a member receives a state while it has one of its own, which it keeps until all is there.

Into spare memory of the same kind, if there is enough. A GPU that is more than half full has not:
then into host memory, over gloo, and when all of it has arrived it is copied over the member's own
tensors. That copy is local and cannot break off, so at no time is there less than one whole state.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from midflight.runtime.state.layout import Prepared, Snapshot, is_dense

MARGIN = 1.1  # memory is given out in blocks


def has_room(tensors: Sequence[Tensor], free: Callable[[torch.device], int] | None = None) -> bool:
    """Whether the devices that hold these tensors could hold them twice."""
    needed: dict[torch.device, int] = {}
    for tensor in tensors:
        if on_device(tensor):
            needed[tensor.device] = needed.get(tensor.device, 0) + tensor.nbytes
    asked = free or free_bytes
    return all(size * MARGIN <= asked(device) for device, size in needed.items())


def free_bytes(device: torch.device) -> int:
    """What the device and torch's own reserve have left."""
    if device.type != "cuda":
        return 0
    reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + reserve


def available_bytes(device: torch.device, root: Path = Path("/")) -> int:
    """What the device, or this host, could still give to torch."""
    if device.type == "cuda":
        return free_bytes(device)
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return min((int(found["MemAvailable"].split()[0]) << 10, *_left_of_limits(root)))


# Where a container sees the limit of its memory, what is used of it, and how much of that are
# files, which give way: of the second version of control groups, and of the first.
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def _left_of_limits(root: Path) -> Iterator[int]:
    """What this container may still take; nothing where there is no limit."""
    for limit, used, statistics, files in _LIMITS:
        folder = root / "sys/fs/cgroup"
        with suppress(OSError, ValueError, KeyError):
            most = int((folder / limit).read_text())
            lines = (folder / statistics).read_text().splitlines()
            gives_way = int(dict(line.split() for line in lines)[files])
            yield max(0, most - int((folder / used).read_text()) + gives_way)


def can_copy(
    tensors: Sequence[Tensor], times: int, free: Callable[[torch.device], int] = available_bytes
) -> bool:
    """Whether half of the memory that is left here would hold so many copies of these.

    A copy lies where the original does, or, if that device has no room, in the host's memory.
    """
    elsewhere = [tensor for tensor in tensors if on_device(tensor)]
    on_host = [tensor for tensor in tensors if not on_device(tensor)]
    if not has_room(elsewhere, free):
        on_host += elsewhere
    return sum(tensor.nbytes for tensor in on_host) * times <= free(torch.device("cpu")) // 2


def host_room(own: Snapshot) -> Prepared:
    """Room in host memory for a state that is laid out as this one."""
    host = torch.device("cpu")
    return Prepared(own.layout, [slot.empty(host) for slot in own.layout.slots])


@torch.no_grad()
def move_in(own: Snapshot, received: Snapshot) -> Snapshot:
    """A state that was received in host memory, in this member's own tensors on the device."""
    if own.layout.slots != received.layout.slots:
        return received
    tensors = list(received.tensors)
    for number, tensor in enumerate(own.tensors):
        if on_device(tensor) and is_dense(tensor):
            tensor.detach().copy_(tensors[number])
            tensors[number] = tensor
    return Snapshot(received.blob, tensors, received.layout)


def on_device(tensor: Tensor) -> bool:
    return not tensor.is_cpu
