"""Where a member receives a state while it has one of its own, which it keeps until all is there.

Into spare memory of the same kind, if there is enough. A GPU that is more than half full has not:
then into host memory, over gloo, and when all of it has arrived it is copied over the member's own
tensors. That copy is local and cannot break off, so at no time is there less than one whole state.
"""

import os
from collections.abc import Callable, Sequence
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


def available_bytes(device: torch.device) -> int:
    """What the device, or this host, could still give to torch."""
    if device.type == "cuda":
        return free_bytes(device)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(found["MemAvailable"].split()[0]) << 10


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
