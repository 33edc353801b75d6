"""A job's folder: `$MIDFLIGHT_HOME/jobs/NAMESPACE/NAME`, 0700, with what its processes look for.

Files are written whole or not at all, so that a discovery script that runs at any moment prints
the old hosts or the new ones. Names that would lead out of the folder are refused. `create` may be
called again at any time.
"""

import random
import re
import shlex
import shutil
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from midflight.atomic_file import write
from midflight.errors import UsageError

PARTS = ("instances", "edl", "bin", "run", "code", "work")
PORTS = range(20000, 32768)  # below those that Linux hands out to connections by itself
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
_TRIES = 200
_COMMANDS = {"midflight": "", "arena": "", "horovodrun": " horovodrun"}  # and the verb


_choosing_a_port = threading.Lock()


class JobFolder:
    def __init__(self, path: Path) -> None:
        """`path` ends with NAMESPACE/NAME."""
        for part in path.parts[-2:]:
            _check(part)
        self.path = path

    @classmethod
    def of(cls, home: Path, key: str) -> "JobFolder":
        namespace, _, name = key.partition("/")
        return cls(home / "jobs" / _check(namespace) / _check(name))

    def create(self, python: str) -> None:
        """Everything that does not depend on where the job runs; `python` is for its commands."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        for part in PARTS:
            (self.path / part).mkdir(mode=0o700, exist_ok=True)
        if not self.hostfile.exists():
            self.write_hosts({})
        discovery = f"#!/bin/sh\nexec cat {shlex.quote(str(self.hostfile))}\n"
        self._script("edl/discover_hosts.sh", discovery)
        self._script("bin/discover_hosts.sh", discovery)
        for command, verb in _COMMANDS.items():
            self._script(
                f"bin/{command}",
                f'#!/bin/sh\nexec {shlex.quote(python)} -P -m midflight.cli.main{verb} "$@"\n',
            )

    @property
    def hostfile(self) -> Path:
        return self.path / "edl" / "hostfile"

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def work(self) -> Path:
        return self.path / "work"

    def instance(self, name: str) -> Path:
        return self.path / "instances" / _check(name)

    def instances(self) -> list[Path]:
        """Those that were started at some time."""
        found = self.path / "instances"
        return sorted(p for p in found.iterdir() if p.is_dir()) if found.is_dir() else []

    def write_hosts(self, hosts: Mapping[str, int]) -> None:
        lines = [f"{_check(host)}:{slots}\n" for host, slots in hosts.items()]
        write(self.hostfile, "".join(lines).encode())

    def port(self) -> int:
        """A port for the job's master, chosen once; no other job of this home has the same."""
        path = self.path / "port"
        with _choosing_a_port:  # a job's instances are started side by side
            if (known := _read_port(path)) is None:
                others = self.path.parent.parent.glob("*/*/port")
                known = free_port({port for port in map(_read_port, others) if port is not None})
                write(path, f"{known}\n".encode())
            return known

    def remove(self) -> None:
        """All of it, and the namespace's folder with the last job. Links are not followed."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
        try:
            self.path.parent.rmdir()
        except OSError:
            return  # other jobs are there

    def _script(self, name: str, text: str) -> None:
        path = self.path / name
        if not path.exists() or path.read_text() != text:
            write(path, text.encode(), 0o700, durable=False)  # looked at again each time


class InstanceFolders(Mapping[str, Path]):
    """Where each instance keeps its log: the known ones in their order, then all that came and
    went. It is looked at anew each time, so that new ones are found."""

    def __init__(self, folder: JobFolder, known: Sequence[str]) -> None:
        self._folder = folder
        self._known = known

    def __getitem__(self, name: str) -> Path:
        if name not in list(self):
            raise KeyError(name)
        return self._folder.instance(name)

    def __iter__(self) -> Iterator[str]:
        others = [path.name for path in self._folder.instances()]
        return iter(dict.fromkeys((*self._known, *others)))

    def __len__(self) -> int:
        return len(list(iter(self)))


def free_port(taken: set[int]) -> int:
    """Free at this moment, and not one that a connection is given by chance."""
    for port in random.sample(PORTS, _TRIES):
        if port not in taken and _can_listen(port):
            return port
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


def _can_listen(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False


def _read_port(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _check(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name:
        raise UsageError(
            f"wanted a name of letters, digits, '-', '_' and '.' for a folder, got {name!r:.80}"
        )
    return name
