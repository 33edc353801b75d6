"""One container of a pod: its process, its output, and what is said about it."""

import asyncio
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

from tests.kubernetes.plane import spawning
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.descriptors import read
from tests.kubernetes.plane.logs import Log
from tests.kubernetes.plane.sandbox import Mount, Room
from tests.kubernetes.plane.spawning import Program, Streams
from tests.kubernetes.plane.status import ContainerStatus, now

_LAST_WORDS = 4096  # bytes of a termination message
_DRAIN = 2.0  # seconds that the last output may take after the process has ended
_CHUNK = 65536


class Container:
    def __init__(self, spec: Json, folder: Path) -> None:
        self.spec = spec
        self.name = str(spec["name"])
        self.status = ContainerStatus(self.name, spec.get("image", ""))
        self.program: Program | None = None  # what it runs, for others to join
        self.pid: int | None = None
        self.logs: list[Log] = []  # of each run
        self._folder = folder
        self._out_of_memory = False
        self._complaint = ""  # why the program could not be started

    @property
    def message_file(self) -> Path:
        return self._folder / f"{self.name}.message"

    def message_mount(self) -> Mount:
        path = self.spec.get("terminationMessagePath", "/dev/termination-log")
        self.message_file.parent.mkdir(parents=True, exist_ok=True)
        self.message_file.write_bytes(b"")
        return Mount(self.message_file, path)

    def wait(self, reason: str, message: str = "") -> None:
        """It does not run, for this reason."""
        waiting = {"reason": reason} | ({"message": message} if message else {})
        self.status = replace(self.status, state={"waiting": waiting}, ready=False)

    async def start(self, room: Room, program: Program) -> asyncio.Task[int]:
        """Starts it once; the task ends with its exit status, which is noted by then."""
        log = Log(self._folder / self.name / f"{len(self.logs)}.log")
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            self.pid, news = spawning.start(room, program, Streams(nothing, writing, writing))
        finally:
            os.close(writing)
            os.close(nothing)
        self.logs.append(log)
        self.program = program
        self._out_of_memory = False
        drained = _pump(reading, log)
        self._complaint = (await read(news, _LAST_WORDS)).decode(errors="replace")
        os.close(news)
        state = {"startedAt": now(), "containerID": f"process://{self.pid}"}
        ready = "readinessProbe" not in self.spec and not self._complaint
        self.status = replace(self.status, state={"running": state}, ready=ready)
        return asyncio.create_task(self._wait(self.pid, drained, room.scratch))

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    def run_out_of_memory(self) -> None:
        """As if the kernel had killed it for that."""
        self._out_of_memory = True
        self.signal(signal.SIGKILL)

    def give_up(self) -> None:
        """It ran on a node of this name that is no more, and nobody knows how it ended."""
        time = now()
        end = {"exitCode": 137, "reason": "ContainerStatusUnknown", "finishedAt": time}
        state = {"terminated": {**end, "startedAt": time}}
        self.status = replace(self.status, state=state, final=True)

    def prepare_restart(self) -> None:
        self.status = replace(
            self.status, last=self.status.state, restarts=self.status.restarts + 1, final=False
        )

    async def _wait(self, pid: int, drained: asyncio.Future[None], scratch: Path) -> int:
        code = await spawning.ended(pid)
        self.pid = None
        await asyncio.wait([drained], timeout=_DRAIN)
        self.logs[-1].close()
        shutil.rmtree(scratch, ignore_errors=True)
        self._note_end(code, pid)
        return code

    def _note_end(self, code: int, pid: int) -> None:
        reason = "Error" if code else "Completed"
        if self._out_of_memory or self._complaint:
            reason = "StartError" if self._complaint else "OOMKilled"
        terminated: Json = {
            "exitCode": code,
            "reason": reason,
            "startedAt": self.status.state["running"]["startedAt"],
            "finishedAt": now(),
            "containerID": f"process://{pid}",
        }
        if message := self._last_words(code):
            terminated["message"] = message
        self.status = replace(self.status, state={"terminated": terminated}, ready=False)

    def _last_words(self, code: int) -> str:
        words = self._complaint.encode() or self.message_file.read_bytes()[:_LAST_WORDS]
        if not words and code and self.spec.get("terminationMessagePolicy", "File") != "File":
            words = self.logs[-1].last(_LAST_WORDS)
        return words.decode(errors="replace")


def _pump(descriptor: int, log: Log) -> asyncio.Future[None]:
    """Moves output into the log until nobody can write any more."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def move() -> None:
        text = os.read(descriptor, _CHUNK)
        if text and not log.closed:
            log.write(text)
        if not text:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            if not done.done():
                done.set_result(None)

    loop.add_reader(descriptor, move)
    return done
