"""The nodes of this machine: itself with its GPUs, or simulated ones.

Where there are no GPUs, slots stand for them. NVML tells the most (`midflight[gpu]`); without it
the driver's own list at least tells how many there are. Whatever cannot be read is left out, never
an error: training does not depend on it. A simulated node has an address of its own in 127.0.0.0/8.
"""

import contextlib
import importlib
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from midflight.controller.state import Node
from midflight.errors import UsageError

LEAST_SLOTS = 16
SLOTS_PER_CORE = 4
MOST_SIMULATED = 250
_ADDRESS = "127.0.1."
_HOSTNAME = "kubernetes.io/hostname"  # the label that selects one node, here as elsewhere
_DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class GpuMetrics:
    duty: int  # percent of the last moments in which something ran
    memory_used: int  # bytes
    memory_total: int


def own_node() -> Node:
    """This machine, with its GPUs or, where it has none, CPU slots that serve as such."""
    name, gpus = socket.gethostname(), gpu_count()
    return Node(name, "127.0.0.1", gpus or cpu_slots(), {_HOSTNAME: name}, virtual=not gpus)


def simulated(count: int, gpus: int) -> tuple[Node, ...]:
    if not 1 <= count <= MOST_SIMULATED:
        raise UsageError(
            f"wanted 1 to {MOST_SIMULATED} simulated nodes, or 0 for this machine, got {count}"
        )
    if not 0 <= gpus <= MOST_SIMULATED:
        raise UsageError(f"wanted 0 to {MOST_SIMULATED} GPUs on each node, got {gpus}")
    return tuple(_node(number, gpus) for number in range(1, count + 1))


def _node(number: int, gpus: int) -> Node:
    name = f"node-{number}"
    return Node(name, f"{_ADDRESS}{number}", gpus, {_HOSTNAME: name}, virtual=True)


def are_simulated(nodes: Mapping[str, Node]) -> bool:
    return any(node.virtual and node.address.startswith(_ADDRESS) for node in nodes.values())


def gpu_count(driver: Path = _DRIVER) -> int:
    with _nvml() as nvml, contextlib.suppress(Exception):
        if nvml is not None:
            return int(nvml.nvmlDeviceGetCount())
    try:
        return len(list(driver.iterdir()))
    except OSError:
        return 0


def cpu_slots() -> int:
    """How many slots a machine without GPUs offers to `--gpus`."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        cores = os.cpu_count() or 1
    return max(LEAST_SLOTS, SLOTS_PER_CORE * cores)


def gpu_metrics() -> dict[int, GpuMetrics]:
    """By index; nothing about those that do not tell."""
    found: dict[int, GpuMetrics] = {}
    with _nvml() as nvml:
        for index in range(gpu_count() if nvml is not None else 0):
            with contextlib.suppress(Exception):  # of NVML's many kinds
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                memory = nvml.nvmlDeviceGetMemoryInfo(handle)
                duty = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
                found[index] = GpuMetrics(int(duty), int(memory.used), int(memory.total))
    return found


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """The library, ready for use; None if it, or a driver, is missing."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no driver, no library, or one that does not fit: all the same
        yield None
        return
    try:
        yield nvml
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()
