"""The first process of a node with real containers, in namespaces of its own (see `real_node`).

It makes the node's mounts and network, starts containerd and the kubelet, and reaps. When it dies
the kernel ends all that it has started, containers included, and takes the mounts and the network
away: whatever happens, nothing is left on this machine.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kubernetes.plane.real_plan import BRIDGE, LINE, SYSCTLS, Plan
from tests.kubernetes.plane.sandbox import mount

NETWORK_UP = "network-up"  # a file
IMAGE_FILE = "image.tar"
_SHARED, _REC, _BIND = 1 << 20, 16384, 4096
_MAC = "02:00:00:00:00:01"  # a bridge without one of its own changes it with each pod
_SECONDS = 60.0
_LOWER = ("/var/lib", "/var/log")  # programs write there, whatever they are told


def main() -> None:
    plan = Plan.read(Path(sys.argv[1]))
    _make_mounts(plan)
    _make_network(plan)
    Path(plan.path(NETWORK_UP)).touch()
    env = {
        "PATH": f"{plan.parts}:{os.environ.get('PATH', '')}",
        "HOME": plan.scratch,
        "LD_LIBRARY_PATH": plan.parts,  # for runc
    }
    runtime = _start(plan, "containerd", plan.containerd_command(), env)
    _await("containerd", lambda: _answers(socket.AF_UNIX, plan.socket))
    _run(plan.import_command(plan.path(IMAGE_FILE)), env)
    _await("the API server", lambda: _answers(socket.AF_INET, ("127.0.0.1", plan.api_port)))
    kubelet = _start(plan, "kubelet", plan.kubelet_command(), env)
    while True:
        pid, status = os.wait()
        if pid in (runtime, kubelet):
            sys.exit(f"{'containerd' if pid == runtime else 'the kubelet'} ended: {status}")


def _make_mounts(plan: Plan) -> None:
    """What is written outside of the node's folder is kept in memory, and to the node."""
    scratch = Path(plan.scratch)
    scratch.mkdir()
    mount("none", "/", flags=_REC | _SHARED)  # among the node's own
    mount("scratch", plan.scratch, "tmpfs")
    mount("run", "/run", "tmpfs")
    for number, lower in enumerate(_LOWER):
        upper, work = scratch / f"upper-{number}", scratch / f"work-{number}"
        upper.mkdir()
        work.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mount("overlay", lower, "overlay", options=options)
    for name, value in SYSCTLS.items():
        shown = scratch / name.replace("/", "-")
        shown.write_text(value)
        mount(str(shown), f"/proc/sys/{name}", flags=_BIND)


def _make_network(plan: Plan) -> None:
    _await("its line", lambda: Path(f"/proc/sys/net/ipv4/conf/{LINE}").exists())
    size = plan.network.partition("/")[2]
    for words in (
        f"link add {BRIDGE} address {_MAC} type bridge",
        f"link set {LINE} master {BRIDGE} up",
        f"address add {plan.node_ip}/{size} dev {BRIDGE}",
        f"address add {plan.service}/32 dev lo",
        f"link set {BRIDGE} up",
        "link set lo up",
    ):
        _run(["ip", *words.split()], dict(os.environ))


def _start(plan: Plan, name: str, command: Sequence[str], env: dict[str, str]) -> int:
    with open(plan.path(f"{name}.log"), "ab") as log:
        return subprocess.Popen(command, env=env, stdout=log, stderr=log).pid


def _run(command: Sequence[str], env: dict[str, str]) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")


def _answers(family: int, address: str | tuple[str, int]) -> bool:
    with socket.socket(family) as line:
        return line.connect_ex(address) == 0


def _await(what: str, there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not there():
        if time.monotonic() > deadline:
            sys.exit(f"waited {_SECONDS:g} s in vain for {what}")
        time.sleep(0.02)  # it has no event to await


if __name__ == "__main__":
    main()
