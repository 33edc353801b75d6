"""`kungfu-cluster-manager-example -ttl 1m CMD ...`: grows and shrinks a cluster at random.

It holds a config store, starts `kungfu-run` that follows it, and writes another cluster every few
seconds, on nodes that are loopback addresses of this machine; now and then none of the old workers
is in it. After each change it looks whether the job has that size and has gone on. The exit code
and one last line say so. `-seed` makes the changes the same again.
"""

import asyncio
import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from midflight import durations, shims
from midflight.compat.kungfu import go_flags
from midflight.compat.kungfu.cluster import FIRST_PORT, RUNNER_PORT, Address, Cluster
from midflight.compat.kungfu.config import ConfigStoreClient
from midflight.compat.kungfu.config_store import ConfigServer
from midflight.compat.kungfu.go_flags import Flag
from midflight.compat.kungfu.settlement import STEPS
from midflight.console import exit_code_of, say
from midflight.coordinator.client import CoordinatorClient
from midflight.errors import JobFailed, MidflightError, UsageError
from midflight.flight.records import Logged
from midflight.protocol.messages import Status
from midflight.python310 import module_words
from midflight.run.dial import call_async
from midflight.run.interrupts import handled
from midflight.rundir import RunDir, read_token

PROGRAM = "kungfu-cluster-manager-example"
FLAGS = {
    "ttl": Flag(120.0, durations.parse, "how long to go on, from the first step of the training"),
    "period": Flag(5.0, durations.parse, "time between two changes"),
    "patience": Flag(60.0, durations.parse, "how long a change may take"),
    "nodes": Flag(3, go_flags.whole(1, 200), "number of nodes"),
    "slots": Flag(2, go_flags.whole(1, 64), "workers that fit on a node"),
    "seed": Flag(-1, go_flags.whole(-1, 1 << 62), "of the changes; -1 for any"),
    "warm": Flag(0, go_flags.whole(0, 64), "workers that each node keeps ready to start"),
    "image": Flag("", go_flags.text, "has no use here: there are no containers"),
}
_LOOK_SECONDS = 0.05
_END_SECONDS = 30.0


@dataclass
class Tally:
    changes: int = 0
    smallest: int = 0
    largest: int = 0
    steps: int = 0

    def count(self, size: int, step: int) -> None:
        self.smallest = min(self.smallest or size, size)
        self.largest = max(self.largest, size)
        self.steps = step


def random_cluster(generator: random.Random, nodes: int, slots: int, now: Cluster) -> Cluster:
    """Another one than `now`. Pure, but for the generator."""
    while True:
        hosts = [f"127.0.0.{number + 1}" for number in range(nodes)]
        chosen = sorted(generator.sample(hosts, generator.randint(1, nodes)))
        workers = tuple(
            Address(host, FIRST_PORT + number)
            for host in chosen
            for number in sorted(generator.sample(range(slots), generator.randint(1, slots)))
        )
        cluster = Cluster(tuple(Address(host, RUNNER_PORT) for host in chosen), workers)
        if set(cluster.workers) != set(now.workers) or (nodes, slots) == (1, 1):
            return cluster


def main(argv: Sequence[str] | None = None) -> int:
    with handled([signal.SIGTERM], lambda *_: sys.exit(143)):
        return exit_code_of(lambda: _manage(sys.argv[1:] if argv is None else argv))


def _manage(words: Sequence[str]) -> int:
    values, given, command = go_flags.parse(PROGRAM, FLAGS, words)
    if not command:
        raise UsageError(f"missing program name; as in `{PROGRAM} -ttl 1m python3 train.py`")
    if "image" in given:
        say("-image has no use here: there are no containers")
    seed = values["seed"] if values["seed"] >= 0 else secrets.randbelow(1 << 30)
    with tempfile.TemporaryDirectory(prefix="kungfu-") as folder:
        token_file = Path(folder) / "token"
        token_file.touch(mode=0o600)
        token_file.write_text(secrets.token_hex(32))
        with ConfigServer(token=read_token(token_file)) as server:
            server.start()
            client = ConfigStoreClient(server.url, str(token_file), timeout=5.0)
            try:
                tally = _Manager(values, random.Random(seed), client).run(command, token_file)
            finally:
                server.shutdown()
    print(
        f"training continued after each of {tally.changes} changes, with {tally.smallest} to "
        f"{tally.largest} workers, for {tally.steps} steps (seed {seed})"
    )
    return 0


class _Manager:
    def __init__(
        self, values: dict[str, Any], generator: random.Random, client: ConfigStoreClient
    ) -> None:
        self._values = values
        self._generator = generator
        self._client = client
        self._name = f"kungfu-manager-{secrets.token_hex(3)}"
        self._tally = Tally()
        self._job: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], token_file: Path) -> Tally:
        cluster = self._next(Cluster((), ()))
        self._client.put(cluster)
        environ = {**os.environ, **shims.environment(os.environ)}
        words = ["-q", "-w", "-config-server", self._client.url, "-name", self._name]
        words += ["-config-token-file", str(token_file), "-warm", str(self._values["warm"])]
        program = module_words("midflight.compat.kungfu.run")
        self._job = subprocess.Popen([*program, *words, *command], env=environ)
        try:
            if self._went_on(cluster):
                self._change_until_ttl(cluster)
            self._end()
            self._tally.steps = _steps(RunDir.of(self._name, os.environ)) or self._tally.steps
        finally:
            self._stop()
        return self._tally

    def _next(self, now: Cluster) -> Cluster:
        nodes, slots = self._values["nodes"], self._values["slots"]
        return random_cluster(self._generator, nodes, slots, now)

    def _change_until_ttl(self, cluster: Cluster) -> None:
        deadline = time.monotonic() + self._values["ttl"]
        while self._still(min(deadline, time.monotonic() + self._values["period"])):
            if time.monotonic() >= deadline:
                return
            cluster = self._next(cluster)
            self._client.put(cluster)
            if not self._went_on(cluster):
                return
            self._tally.changes += 1

    def _still(self, until: float) -> bool:
        """Wait; False if the job has ended meanwhile, as it may."""
        while time.monotonic() < until:
            if self._ended():
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _went_on(self, cluster: Cluster) -> bool:
        """Wait until the job has the workers of this cluster, and has done steps with them."""
        deadline = time.monotonic() + self._values["patience"]
        begun: int | None = None
        status: Status | None = None
        while not self._ended():
            if time.monotonic() >= deadline:
                raise JobFailed(_too_late(cluster, status, self._values["patience"]))
            status = self._status() or status
            if status is not None and _hosts_of(status) == cluster.slots:
                begun = status.step if begun is None else begun
                if status.step > begun:
                    self._tally.count(len(cluster.workers), status.step)
                    return True
            time.sleep(_LOOK_SECONDS)
        return False

    def _status(self) -> Status | None:
        try:
            dial = partial(call_async, RunDir.of(self._name, os.environ))
            return asyncio.run(CoordinatorClient(dial).status())
        except MidflightError:
            return None  # it has yet to come up, or has just ended

    def _ended(self) -> bool:
        """Whether the job has come to its end by itself; JobFailed if that was a bad one."""
        assert self._job is not None
        code = self._job.poll()
        if code:
            raise JobFailed(f"training ended with exit code {code}")
        return code == 0

    def _end(self) -> None:
        """The time is over: a cluster without workers ends the job."""
        if self._ended():
            return
        found = self._client.get()
        assert found is not None and self._job is not None
        self._client.put(Cluster(found.cluster.runners, ()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._job.wait(_END_SECONDS)
        if not self._ended():
            raise JobFailed(f"training did not end within {_END_SECONDS:g} s")

    def _stop(self) -> None:
        assert self._job is not None
        if self._job.poll() is None:
            self._job.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._job.wait(_END_SECONDS)
        if self._job.poll() is None:
            self._job.kill()
            self._job.wait()


def _steps(folder: RunDir) -> int:
    """The last step of the script, as its rank 0 told the record; 0: it has not."""
    told = [r.values.get(STEPS) for r in folder.read_flight_log() if isinstance(r, Logged)]
    return int(next((steps for steps in reversed(told) if steps), 0))


def _hosts_of(status: Status) -> dict[str, int]:
    found: dict[str, int] = {}
    for member in status.members:
        if member.rank is not None:
            found[member.host] = found.get(member.host, 0) + 1
    return found


def _too_late(cluster: Cluster, status: Status | None, patience: float) -> str:
    is_now = "nobody answers" if status is None else f"{_hosts_of(status)} at step {status.step}"
    return f"training did not go on with {cluster.slots} within {patience:g} s; it is {is_now}"


if __name__ == "__main__":
    sys.exit(main())
