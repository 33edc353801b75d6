"""Nodes of a torchrun job, as processes of this machine, and the words of their workers."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.run.site import Launched, Site, eventually
from tests.store.etcd_process import free_port

SCRIPTS = Path(__file__).with_name("scripts")
UP = re.compile(r"(?:up|in) (\d+)/(\d+) .*?pid (\d+)")


@dataclass(frozen=True)
class Worker:
    rank: int
    size: int
    pid: int


class Job:
    """A job's nodes all have the same flags."""

    def __init__(self, site: Site, *flags: str, script: str = "hold.py") -> None:
        self.site = site
        self.folder = site.folder
        self._flags = flags
        self._script = script
        self.nodes: list[Launched] = []

    def start(self, *flags: str, words: tuple[str, ...] = ()) -> Launched:
        script = str(SCRIPTS / self._script)
        node = torchrun(self.site, *self._flags, *flags, script, str(self.folder), *words)
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        (self.folder / "stop").touch()

    def await_size(self, *nodes: Launched, size: int, within: float = 30.0) -> list[Worker]:
        """Until the last word of all workers of these nodes is that they are so many."""

        def whole() -> bool:
            workers = [latest(node) for node in nodes]
            return all(w is not None and w.size == size for w in workers)

        eventually(whole, within, lambda: [node.lines for node in nodes])
        return [worker for node in nodes if (worker := latest(node)) is not None]


def latest(node: Launched) -> Worker | None:
    """The last that the worker of a node with one worker said."""
    found = [UP.search(line) for line in node.lines]
    numbers = [tuple(map(int, match.groups())) for match in found if match is not None]
    return Worker(*numbers[-1]) if numbers else None


def torchrun(site: Site, *arguments: str, **environ: str) -> Launched:
    command = [sys.executable, "-P", "-m", "midflight.torchrun", *arguments]
    own = {
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(site.folder),
    }  # who is killed leaves a folder there
    return Launched(command, {**site.env, **own, **environ}, site.folder)


def finish(node: Launched, within: float = 60.0) -> list[str]:
    """The lines of a node that ends well."""
    assert node.ends(within) == 0, node.lines
    return node.lines


def meeting_on_loopback() -> tuple[str, ...]:
    """Flags with which nodes of this machine meet by themselves."""
    return (
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}"),
        *("--rdzv-id=meeting", "--rdzv-conf=last_call_timeout=0.3"),
    )
