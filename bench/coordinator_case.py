"""The coordinator alone: many simulated members join, ten more come, ten are lost at once.

Reported for several sizes, so that the growth can be read off, and for each part of the story: the
seconds that pass, the processor time of the coordinator's process, and what it and the members say
to each other, all but heartbeats. A part ends when the coordinator says so. The members live in the
process that measures, on another core, so the processor time is the coordinator's alone.
"""

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import BenchError
from bench.rows import Row
from bench.simulated import SimulatedAgent, Traffic
from bench.usage import cpu_seconds, resident_megabytes
from midflight import descriptors
from midflight.protocol import messages as say
from midflight.protocol.job import JobSpec
from midflight.protocol.wire import dial
from midflight.rundir import RunDir

SIZES = (1000, 4000)
SLOTS = 8  # of each host
CHANGED = 10  # members that are added, and lost
SECONDS = 300.0


@dataclass(frozen=True)
class Part:
    """One part of the story, and what it took."""

    name: str
    seconds: float
    processor: float  # seconds of the coordinator's process
    messages: int
    size: int  # bytes of all messages
    memory: float  # megabytes of the coordinator's process, at the end


def run(sizes: Sequence[int] = ()) -> list[Row]:
    """One repeat for each size."""
    return [row for size in sizes or SIZES for part in measure(size) for row in _rows(size, part)]


def measure(size: int) -> list[Part]:
    """Form a world of that size, make it larger, and have some of its members die."""
    descriptors.raise_limit()
    with tempfile.TemporaryDirectory() as folder:
        run_dir = RunDir(Path(folder))
        run_dir.create()
        run_dir.make_token()
        spec = JobSpec("bench", ("true",), size, 1, 2 * size, start_timeout=SECONDS)
        run_dir.write_spec(spec)
        return asyncio.run(_measure(run_dir, size))


async def _measure(run_dir: RunDir, size: int) -> list[Part]:
    async with asyncio.timeout(SECONDS), _coordinator(run_dir) as coordinator:
        address, secret = await asyncio.to_thread(_address, run_dir), run_dir.read_token()
        hosts = (size + 2 * CHANGED) // SLOTS + 2
        agents = [SimulatedAgent(f"host-{n}", SLOTS, address, secret) for n in range(hosts)]
        parts = _Parts(coordinator)
        tasks = [asyncio.create_task(agent.live()) for agent in agents]
        try:
            await parts.end("all joined", f"training with {size} members")
            client = await dial(address, "client", "bench", secret)
            client.send(say.ResizeRequested(None, CHANGED, 0, (), SECONDS))
            await parts.end(f"{CHANGED} added", f"resized from {size} to {size + CHANGED}")
            members = [member for agent in agents for member in agent.members.values()]
            for member in members[:CHANGED]:
                member.die()
            await parts.end(f"{CHANGED} lost at once", f"went on with {size} members")
            await parts.end(f"{CHANGED} replaced", f"resized from {size} to {size + CHANGED}")
        finally:
            for task in tasks:
                task.cancel()
        return parts.all


def _address(run_dir: RunDir) -> str:
    deadline = time.monotonic() + SECONDS
    while (address := run_dir.read_address()) is None:
        if time.monotonic() > deadline:
            raise BenchError(f"no coordinator serves {run_dir.path}")
        time.sleep(0.01)
    return address


@asynccontextmanager
async def _coordinator(run_dir: RunDir) -> AsyncIterator[Process]:
    coordinator = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "midflight.coordinator", "--run-dir", str(run_dir.path),
        "--listen", "127.0.0.1:0", "--store", run_dir.store_url,
        stdout=DEVNULL, stderr=PIPE,
    )  # fmt: skip
    try:
        yield coordinator
    finally:
        if coordinator.returncode is None:
            coordinator.kill()
        await coordinator.wait()


class _Parts:
    """The parts so far. The coordinator's own lines tell where one ends."""

    def __init__(self, coordinator: Process) -> None:
        self._coordinator = coordinator
        self.all: list[Part] = []
        self._before = self._now("")

    async def end(self, name: str, line: str) -> None:
        assert self._coordinator.stderr is not None
        while line not in (said := (await self._coordinator.stderr.readline()).decode()):
            if not said:
                raise BenchError(f"the coordinator ended before it said {line!r}")
        now, before = self._now(name), self._before
        self._before = now
        self.all.append(
            Part(
                name,
                now.seconds - before.seconds,
                now.processor - before.processor,
                now.messages - before.messages,
                now.size - before.size,
                now.memory,
            )
        )

    def _now(self, name: str) -> Part:
        pid = self._coordinator.pid
        used, memory = cpu_seconds(pid), resident_megabytes(pid)
        return Part(name, time.monotonic(), used, Traffic.messages, Traffic.size, memory)


def _rows(size: int, part: Part) -> list[Row]:
    def row(metric: str, value: float, unit: str) -> Row:
        return Row("midflight", "coordinator", 0, size, f"{part.name}{metric}", value, unit)

    return [
        row("", part.seconds, "s"),
        row(", processor time", part.processor, "s"),
        row(", messages", part.messages, ""),
        row(", traffic", part.size / 1e6, "MB"),
        row(", memory at its end", part.memory, "MB"),
    ]
