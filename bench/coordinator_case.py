"""The coordinator alone: many simulated members join, are resized, and lose ten at once.

Reported for several sizes, so that the growth can be read off: seconds from the first agent to the
first world, from a request for ten more members to its end, from ten deaths to the next world, and
the processor time and resident memory of the coordinator's process. The simulated members live in
the process that measures, so the processor time is the figure that is the coordinator's alone.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.processes import BenchError
from bench.rows import Row
from bench.simulated import SimulatedAgent, Traffic
from bench.usage import cpu_seconds, resident_megabytes
from midflight import descriptors
from midflight.protocol import messages as say
from midflight.protocol.job import JobSpec
from midflight.protocol.wire import AsyncWire, dial
from midflight.rundir import RunDir

SIZES = (250, 1000)
HOSTS = 10
LOST = 10
SECONDS = 300.0


def run(sizes: Sequence[int] = ()) -> list[Row]:
    """One repeat for each size."""
    descriptors.raise_limit()
    return [row for size in sizes or SIZES for row in _measure(size)]


def _measure(size: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = RunDir(Path(folder))
        run_dir.create()
        run_dir.make_token()
        run_dir.write_spec(JobSpec("bench", ("true",), np=size, min_np=1, max_np=2 * size))
        coordinator = subprocess.Popen(
            [
                sys.executable, "-m", "midflight.coordinator", "--run-dir", folder,
                "--listen", "127.0.0.1:0", "--store", run_dir.store_url,
            ],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return asyncio.run(_scenario(run_dir, coordinator.pid, size))
        finally:
            coordinator.kill()
            coordinator.wait()


async def _scenario(run_dir: RunDir, pid: int, size: int) -> list[Row]:
    await asyncio.to_thread(_await_address, run_dir)
    async with asyncio.timeout(SECONDS):
        address, secret = run_dir.read_address() or "", run_dir.read_token()
        slots = size // HOSTS + 2 * LOST
        agents = [SimulatedAgent(f"host-{n}", slots, address, secret) for n in range(HOSTS)]
        began = time.monotonic()
        told = [Traffic.received + Traffic.sent]
        tasks = [asyncio.create_task(agent.live()) for agent in agents]
        client = await dial(address, "client", "bench", secret)
        await _until(client, lambda s: s.phase == "stable" and len(s.members) == size)
        joined = time.monotonic()
        told.append(Traffic.received + Traffic.sent)
        client.send(say.ResizeRequested(None, LOST, 0, (), SECONDS))
        while not isinstance(answer := await client.receive(), say.RequestEnded):
            pass
        if not answer.ok:
            raise BenchError(f"the resize failed: {answer.detail}")
        resized = time.monotonic()
        told.append(Traffic.received + Traffic.sent)
        for member in list(agents[0].members.values())[:LOST]:
            member.die()
        await _until(client, lambda s: s.phase == "stable" and s.resets > 0)
        recovered = time.monotonic()
        told.append(Traffic.received + Traffic.sent)
        memory, cpu = resident_megabytes(pid), cpu_seconds(pid)
        for task in tasks:
            task.cancel()

    def row(metric: str, value: float, unit: str) -> Row:
        return Row("midflight", "coordinator", 0, size, metric, value, unit)

    return [
        row("all joined", joined - began, "s"),
        row(f"{LOST} added", resized - joined, "s"),
        row(f"{LOST} lost at once", recovered - resized, "s"),
        row("all joined, traffic", (told[1] - told[0]) / 1e6, "MB"),
        row(f"{LOST} added, traffic", (told[2] - told[1]) / 1e6, "MB"),
        row(f"{LOST} lost, traffic", (told[3] - told[2]) / 1e6, "MB"),
        row("processor time", cpu, "s"),
        row("memory", memory, "MB"),
    ]


async def _until(client: AsyncWire, wanted: Callable[[say.Status], bool]) -> None:
    while True:
        client.send(say.StatusRequested())
        status = await client.receive()
        if isinstance(status, say.Status) and wanted(status):
            return
        await asyncio.sleep(0.02)


def _await_address(run_dir: RunDir) -> None:
    deadline = time.monotonic() + SECONDS
    while run_dir.read_address() is None and time.monotonic() < deadline:
        time.sleep(0.01)
