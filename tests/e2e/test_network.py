"""Two hosts in network namespaces, and the network between them: cut, and mended.

A switch (a bridge in a third namespace) connects the hosts. A cut takes a host's port out of the
bridge: nobody sees a link go down or a connection being reset; packets just stop arriving.
"""

import ctypes
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import PATIENCE, Run, check_complete, ranked

pytestmark = [pytest.mark.slow, pytest.mark.netns]
HERE, THERE = "10.213.77.1", "10.213.77.2"
CLONE_NEWNET = 0x40000000  # from linux/sched.h
FLAGS = ("-H", f"{HERE}:1,{THERE}:2", "--min-np", "1", "--max-np", "3", "--cooldown", "1", "1")


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """Host a (10.213.77.1), host b (10.213.77.2), and what is between them."""

    def __init__(self) -> None:
        name = f"midflight-{os.getpid()}-{secrets.token_hex(2)}"
        self.switch, self.a, self.b = (f"{name}-{part}" for part in ("switch", "a", "b"))

    def build(self) -> None:
        for space in (self.switch, self.a, self.b):
            ip("netns", "add", space)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for port, space, address in (("port-a", self.a, HERE), ("port-b", self.b, THERE)):
            peer = ("peer", "name", "eth0", "netns", space)
            ip("-n", self.switch, "link", "add", port, "type", "veth", *peer)
            ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", space, "link", "set", link, "up")

    def cut(self) -> None:
        ip("-n", self.switch, "link", "set", "port-b", "nomaster")

    def mend(self) -> None:
        ip("-n", self.switch, "link", "set", "port-b", "master", "bridge")

    def processes(self, space: str) -> set[int]:
        return {int(word) for word in ip("netns", "pids", space).split()}

    def remove(self) -> None:
        there = [space for space in (self.switch, self.a, self.b) if _exists(space)]
        for space in there:
            for pid in self.processes(space):
                os.kill(pid, signal.SIGKILL)
        for space in there:
            ip("netns", "del", space)


def _exists(space: str) -> bool:
    return Path("/run/netns", space).exists()


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    try:
        try:
            made.build()
        except OSError as error:
            pytest.skip(f"no network namespaces can be made here: {error}")
        yield made
    finally:
        made.remove()


class TwoHosts(Run):
    """A run whose launcher is on host a; what it says is to be run on host b is run there."""

    def __init__(self, home: Path, network: Network, *flags: str) -> None:
        super().__init__(home, *FLAGS, *flags)
        self.network = network
        self._argv = ["ip", "netns", "exec", network.a, *self._argv]
        self._inside = ThreadPoolExecutor(1, initializer=_enter, initargs=(network.a,))

    def start_b(self) -> None:
        line = self.await_line(f"run on {THERE}: midflight agent --join {HERE}:")
        words = shlex.split(line.partition(f"{THERE}: midflight ")[2])
        program = [sys.executable, "-m", "midflight.cli.main", *words]
        self.agent = subprocess.Popen(
            ["ip", "netns", "exec", self.network.b, *program],
            env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end_of_b(self) -> tuple[int, str]:
        """The agent's exit code there, and what it said."""
        _, said = self.agent.communicate(timeout=PATIENCE)
        return self.agent.returncode, said

    def status(self) -> dict[str, Any]:
        return self._inside.submit(super().status).result(PATIENCE)

    def steps(self, member: dict[str, Any]) -> int:
        """How many steps a member has written to its ledger."""
        ledger = self.home / "runs" / "job" / "ledgers" / f"{member['name']}.jsonl"
        return len(ledger.read_text().splitlines())


def _enter(space: str) -> None:
    """Move this thread, and no other, to a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", space).open() as file:
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def trained_on_both(run: TwoHosts) -> list[dict[str, Any]]:
    """Wait until both hosts train together; the members there."""
    run.start_b()
    status = run.await_stable(3, beyond=3)
    there = [m for m in ranked(status) if m["host"] == THERE]
    assert len(there) == 2
    return there


def test_the_side_with_the_coordinator_goes_on_and_the_other_stops(
    tmp_path: Path, network: Network
) -> None:
    with TwoHosts(tmp_path, network, "--elastic-timeout", "6") as run:
        there = trained_on_both(run)
        network.cut()
        alone = run.await_status(lambda s: s["phase"] == "stable" and len(ranked(s)) == 1)
        assert ranked(alone)[0]["host"] == HERE
        assert alone["resets"] == 1
        stood = [run.steps(member) for member in there]
        run.progress()
        code, said = run.end_of_b()
        assert code == 1
        assert "gave up: no coordinator" in said
        assert [run.steps(member) for member in there] == stood  # two of three, and not a step
        assert not network.processes(network.b)
        assert run.finish() == 0
        check_complete(run)
        assert f"no message from {THERE} for 5 s" in run.output


def test_a_short_interruption_is_ridden_out(tmp_path: Path, network: Network) -> None:
    with TwoHosts(tmp_path, network) as run:
        trained_on_both(run)
        network.cut()
        time.sleep(0.8)  # what was said before the cut has been heard by then
        stood = run.status()["step"]
        time.sleep(0.8)
        assert run.status()["step"] == stood
        network.mend()
        after = run.progress()
        assert (after["resets"], after["generation"], len(ranked(after))) == (0, 1, 3)
        assert run.finish() == 0
        check_complete(run)
        assert run.end_of_b()[0] == 0


def test_a_host_that_comes_back_is_used_again_with_new_members(
    tmp_path: Path, network: Network
) -> None:
    with TwoHosts(tmp_path, network) as run:
        there = trained_on_both(run)
        network.cut()
        run.await_status(lambda s: s["phase"] == "stable" and len(ranked(s)) == 1)
        network.mend()
        after = run.await_stable(3)
        assert not {m["name"] for m in there} & {m["name"] for m in ranked(after)}
        eventually(lambda: not {m["pid"] for m in there} & network.processes(network.b))
        assert run.finish() == 0
        check_complete(run)
        assert run.end_of_b()[0] == 0
