"""What a checkpoint costs: the pause of the training, and how fast it is on the disk.

One process trains alone, with a state of so many megabytes in tensors of one, and a checkpoint at
every second step boundary. The pause is what such a boundary takes longer than one without, beside
one memcpy of as many bytes. A checkpoint is written when nothing else is going on, beside as many
bytes written and flushed to the same disk in pieces of the same size, as `dd conv=fsync` does.
"""

import ctypes
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

import midflight as mf
from bench.rows import Row
from midflight.runtime.state.checkpoint_folder import CHUNK

TIMES = 9
MEGABYTE = 1 << 20


def run(megabytes: int) -> list[Row]:
    """One repeat of everything."""
    torch.set_num_threads(1)
    copy = median(_copies(megabytes * MEGABYTE))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        pauses, writes = _checkpoints(megabytes, Path(folder))
        disk = median(_disk(megabytes * MEGABYTE, Path(folder)))
    pause, write = median(pauses), median(writes)
    figures = (
        ("pause", 1000 * pause, "ms"),
        ("one memcpy", 1000 * copy, "ms"),
        ("pause over memcpy", pause / copy, "x"),
        ("written", megabytes / write, "MB/s"),
        ("the disk alone", megabytes / disk, "MB/s"),
        ("written over the disk alone", disk / write, "x"),
    )
    return [Row("midflight", "checkpoint", megabytes, 1, *figure) for figure in figures]


def _checkpoints(megabytes: int, folder: Path) -> tuple[list[float], list[float]]:
    """The seconds of each pause and of each write."""
    parts = (torch.randn(MEGABYTE // 4) for _ in range(megabytes))
    model = torch.nn.ParameterList(torch.nn.Parameter(part) for part in parts)
    boundaries: dict[bool, list[float]] = {False: [], True: []}
    writes = []
    with mf.join(model=model, ddp=False) as job:
        job.checkpoints(folder, every=2, keep=1)
        held = job._session.checkpoints
        assert held is not None
        for _ in range(2 * TIMES + 2):
            began = time.monotonic()
            job.check()
            after = time.monotonic()
            thread, held._thread = held._thread, None
            if thread is not None:
                thread.join()
                writes.append(time.monotonic() - after)
            boundaries[job.step_number % 2 == 0].append(after - began)
    usual = median(boundaries[False])
    # neither the first step, which has none, nor the room that is made after it
    return [seconds - usual for seconds in boundaries[True][1:]], writes[1:]


def _copies(size: int) -> list[float]:
    source, target = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
    return [_seconds_of_copy(source, target, size) for _ in range(TIMES)]


def _seconds_of_copy(source: torch.Tensor, target: torch.Tensor, size: int) -> float:
    began = time.monotonic()
    ctypes.memmove(target.data_ptr(), source.data_ptr(), size)
    return time.monotonic() - began


def _disk(size: int, folder: Path) -> list[float]:
    part = os.urandom(CHUNK)
    path, seconds = folder / "plain", []
    for _ in range(TIMES):
        began = time.monotonic()
        with path.open("wb", buffering=0) as file:
            for start in range(0, size, CHUNK):
                file.write(part[: size - start])
            os.fsync(file.fileno())
        seconds.append(time.monotonic() - began)
        path.unlink()
    return seconds
