"""A home with a real server and real processes, for tests that kill, count and look closely.

What a person would do is typed, as in the guides; what only has to be arranged or looked at goes
through the client, which is quicker. The server that answers was started by a typed command, so
that everything carries this home in its environment and is found if it is left over.
"""

import os
import re
import signal
from pathlib import Path
from typing import Any

from midflight.backends.crash_points import VARIABLE
from midflight.client import Client
from midflight.errors import NotFound
from midflight.protocol.views import JobView
from midflight.server.folder import SOCKET
from tests.guides.terminal import Terminal
from tests.run.site import eventually

SPACE = "default"
_KEEPER = re.compile(r"keeper\.py \S*/jobs/(\S+)/instances/(\S+)$")


class Home(Terminal):
    @property
    def client(self) -> Client:
        return Client(self.home / SOCKET)

    def serve(self, crash: str = "") -> Client:
        """A server that answers; one that kills itself at a point, if that is said."""
        if crash:
            self.env[VARIABLE] = crash
        try:
            self.types("midflight list")
        finally:
            self.env.pop(VARIABLE, None)
        return self.client

    def server(self) -> int:
        """The pid of the server, 0 if there is none."""
        words = self.processes()
        pids = [pid for pid in words if "-m midflight.server" in words[pid]]
        pids = [pid for pid in pids if _parent(pid) not in pids]
        assert len(pids) <= 1, f"several servers: {pids}"
        return pids[0] if pids else 0

    def kill_server(self) -> None:
        pid = self.server()
        assert pid > 1
        os.kill(pid, signal.SIGKILL)
        self.server_is_gone()

    def server_is_gone(self) -> None:
        eventually(lambda: not self.server(), within=60, but=lambda: "the server still lives")

    # --- jobs -------------------------------------------------------------------------------

    def sleeper(self, name: str = "s", command: str = "sleep 1000", **more: Any) -> dict[str, Any]:
        """Two instances, each of them a shell's command; nothing of them is a training."""
        spec = {"kind": "pytorchjob", "name": name, "workers": 2, "command": command}
        return {**spec, "working_dir": str(self.folder), **more}

    def elastic(self, name: str = "e", command: str = "sleep 1000", **more: Any) -> dict[str, Any]:
        """A launcher that does not train, and workers that wait for it to."""
        sizes = {"workers": 1, "min_workers": 1, "max_workers": 4}
        spec = {"kind": "etjob", "name": name, "command": command, "run_in": "launcher", **sizes}
        return {**spec, "working_dir": str(self.folder), **more}

    def job(self, name: str) -> JobView | None:
        """None if there is none."""
        try:
            return self.client.job(SPACE, name)
        except NotFound:
            return None

    def seen(self, name: str) -> JobView:
        job = self.job(name)
        assert job is not None, f"{name} is gone"
        return job

    def statuses(self, name: str) -> dict[str, str]:
        return {i["name"]: i["status"] for i in self.seen(name)["instances"]}

    def is_up(self, name: str, workers: int) -> bool:
        """All of it runs, no more and no less."""
        job = self.seen(name)
        counted = [i for i in job["instances"] if i["role"] != "launcher"]
        runs = all(i["status"] == "Running" for i in job["instances"])
        return runs and len(counted) == workers == job["workers"] and job["status"] == "RUNNING"

    def await_up(self, name: str, workers: int, within: float = 30.0) -> None:
        eventually(lambda: self.is_up(name, workers), within, lambda: str(self.job(name)))

    # --- processes --------------------------------------------------------------------------

    def keepers(self, name: str) -> dict[str, int]:
        """Instances that run, and their keepers; there must not be two of one."""
        matches = {pid: _KEEPER.search(words) for pid, words in self.processes().items()}
        own = {p: m[2] for p, m in matches.items() if m is not None and m[1] == f"{SPACE}/{name}"}
        found: dict[str, int] = {}
        for pid, instance in own.items():
            if _parent(pid) not in own:
                assert instance not in found, f"{instance} runs twice"
                found[instance] = pid
        return found

    def runs_what_it_says(self, name: str) -> None:
        """The processes are those that `get` shows, once everything has come to rest."""

        def same() -> bool:
            return set(self.keepers(name)) == {
                instance for instance, status in self.statuses(name).items() if status == "Running"
            }

        eventually(same, but=lambda: f"{self.statuses(name)} but {self.keepers(name)}")

    def pids(self, name: str) -> dict[str, int]:
        return {i["name"]: i["pid"] for i in self.seen(name)["instances"]}

    def job_folder(self, name: str) -> Path:
        return self.home / "jobs" / SPACE / name

    def state_file(self, name: str, instance: str) -> Path:
        return self.job_folder(name) / "instances" / instance / "state.json"


def _parent(pid: int) -> int:
    """A child that was forked a moment ago still looks like its parent, and is not another one."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return pid  # it is gone, so it is not another one either
