"""Devices: GPUs as NVML or the driver tells of them, and slots where there are none."""

import os
import sys
import types
from pathlib import Path

import pytest

from midflight.backends.local.nodes import GpuMetrics, cpu_slots, gpu_count, gpu_metrics


def test_without_nvml_the_drivers_list_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_count(tmp_path / "nowhere") == 0
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / name).mkdir()
    assert gpu_count(tmp_path) == 2
    assert gpu_metrics() == {}


def test_a_fake_nvml_tells_of_each_gpu_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = types.ModuleType("pynvml")

    def rates(handle: int) -> types.SimpleNamespace:
        if handle == 1:
            raise RuntimeError("not supported")
        return types.SimpleNamespace(gpu=42)

    vars(fake).update(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(used=5, total=10),
        nvmlDeviceGetUtilizationRates=rates,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert gpu_count(tmp_path) == 2
    assert gpu_metrics() == {0: GpuMetrics(42, 5, 10)}


def test_there_are_always_some_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert cpu_slots() == 16
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)
    assert cpu_slots() == 128
