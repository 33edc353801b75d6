"""KungFu's commands as real processes, found through the shims as a user's shell finds them."""

import subprocess
from pathlib import Path

from midflight import shims
from midflight.compat.kungfu.cluster import RUNNER_PORT, Address, Cluster
from midflight.compat.kungfu.config import ConfigStoreClient
from tests.run.site import Launched, Site

TRAINEE = Path(__file__).with_name("trainee.py")


class Commands(Site):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.env["OMP_NUM_THREADS"] = "1"
        self.env.update(shims.environment(self.env))

    def start(self, *words: str) -> Launched:
        return Launched([f"{shims.BIN}/{words[0]}", *words[1:]], self.env, self.folder)

    def finish(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [f"{shims.BIN}/{words[0]}", *words[1:]],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def config_server(self, *words: str) -> tuple[Launched, ConfigStoreClient]:
        """On a port of its own choice."""
        server = self.start("kungfu-config-server", "-port", "0", *words)
        server.says("config server at")
        url = next(line for line in server.lines if "config server at" in line).split()[-1]
        return server, ConfigStoreClient(url, timeout=5.0)


def cluster(*workers: str) -> Cluster:
    """`cluster("127.0.0.1:10000", ...)`, with a runner on each host."""
    found = tuple(Address(w.rpartition(":")[0], int(w.rpartition(":")[2])) for w in workers)
    hosts = dict.fromkeys(worker.host for worker in found)
    return Cluster(tuple(Address(host, RUNNER_PORT) for host in hosts), found)
