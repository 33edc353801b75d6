"""The GPUs of this machine, or the slots that stand for them where there are none.

NVML tells the most (`midflight[gpu]`); without it the driver's own list at least tells how many
there are. Whatever cannot be read is left out, never an error: training does not depend on it.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEAST_SLOTS = 16
SLOTS_PER_CORE = 4
_DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class GpuMetrics:
    duty: int  # percent of the last moments in which something ran
    memory_used: int  # bytes
    memory_total: int


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
