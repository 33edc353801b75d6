"""A run whose launcher moves: each time another folder and address, the same name, store and token.

Stands in for whoever runs the job: writes the hostfile and the token, starts the workers' agents,
and says which address the launcher's name means now. Workers see that in an /etc/hosts of their
own, which takes the right to mount.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from midflight.rundir import RunDir
from tests.e2e.runs import Run
from tests.store.etcd_process import free_port

NAME = "job-launcher.test.svc"
_SEES = (
    'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/nsswitch.conf && shift 2 && exec "$@"'
)


def can_mount() -> bool:
    probe = ["unshare", "--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    return shutil.which("unshare") is not None and not subprocess.run(probe).returncode


class MovingRun(Run):
    def __init__(self, home: Path, *flags: str, np: int, store: str | None = None) -> None:
        super().__init__(home, *flags, np=np)
        self._port = free_port()
        self._places = 0
        self._hosts, self._lookup = home / "hosts", home / "nsswitch.conf"
        self._hosts.touch()
        self._lookup.write_text("hosts: files\n")
        (home / "edl").mkdir()
        (home / "token").touch(0o600)
        (home / "token").write_text("the job's own\n")
        self.env |= {
            "MIDFLIGHT_JOB": "job",
            "MIDFLIGHT_HOSTFILE": str(home / "edl" / "hostfile"),
            "MIDFLIGHT_TOKEN_FILE": str(home / "token"),
            "MIDFLIGHT_STORE": store or f"sqlite://{home}/store.db",
        }

    def settle(self) -> None:
        """The next launcher is to be somewhere else."""
        self._places += 1
        place = self.home / f"place-{self._places}"
        place.mkdir()
        address = f"127.0.0.{10 + self._places}"
        self.folder = RunDir(place / "run")
        self.env |= {
            "MIDFLIGHT_JOB_DIR": str(place),
            "MIDFLIGHT_LISTEN": f"{address}:{self._port}",
        }
        self._hosts.write_text(f"{address} {NAME}\n")

    def move(self) -> None:
        """What is left of the launcher is gone, and another one is started elsewhere."""
        shutil.rmtree(self.folder.path.parent)
        self.settle()
        self.__enter__()

    def try_other_work(self) -> "subprocess.CompletedProcess[str]":
        """A launcher of the same name in a new place, with another command."""
        shutil.rmtree(self.folder.path.parent)
        self.settle()
        return subprocess.run(
            [*self._argv, "--other"], env=self.env, capture_output=True, text=True, timeout=60
        )

    def kill_launcher(self, coordinator: int) -> None:
        """As when its machine loses power."""
        os.kill(self.launcher.pid, signal.SIGKILL)
        os.kill(coordinator, signal.SIGKILL)
        self.launcher.wait(30)
        self._hosts.write_text("")  # the name means nothing until there is another

    def list_hosts(self, *names: str) -> None:
        temporary = self.home / "edl" / ".hostfile"
        temporary.write_text("".join(f"{name}:1\n" for name in names))
        temporary.replace(self.home / "edl" / "hostfile")

    @contextmanager
    def worker(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        sees = ["unshare", "--mount", "sh", "-c", _SEES, "sh", str(self._hosts), str(self._lookup)]
        words = [sys.executable, "-P", "-m", "midflight.agent", "--join", f"{NAME}:{self._port}"]
        words += ["--token-file", str(self.home / "token"), "--name", name, "--verbose"]
        env = {k: v for k, v in self.env.items() if not k.startswith("MIDFLIGHT_")}
        agent = subprocess.Popen(
            [*sees, *words, "--address", "127.0.0.1", "--join-timeout", "600"],
            env=env | {"MIDFLIGHT_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield agent
        finally:
            agent.kill()
            agent.wait(30)
