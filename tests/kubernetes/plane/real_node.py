"""A node with real containers beside a plane: containerd, runc and the kubelet, on this machine.

It lives in namespaces of its own (mounts, processes, network): no containerd, no mount, no packet
filter and no setting of this machine is touched, and all of it ends with its first process. This
machine has one line to its network, so that the API server reaches the kubelet and an operator the
pods; pods reach nothing but each other and the API server.
"""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from ipaddress import IPv4Network
from pathlib import Path

from tests.kubernetes.plane import real_image
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.daemons import Daemon, StartFailed
from tests.kubernetes.plane.real_init import IMAGE_FILE, NETWORK_UP
from tests.kubernetes.plane.real_parts import Parts
from tests.kubernetes.plane.real_plan import CGROUP, LINE, Plan

_ROOT = Path(__file__).resolve().parents[3]
_READY_SECONDS = 60.0
_NETWORKS = [f"10.{second}.{third}.0/24" for second in (213, 214) for third in range(256)]
_CGROUPS = Path("/sys/fs/cgroup")
_EMPTYING_SECONDS = 2.0  # a process that has ended may be counted a moment longer
_NODE = "node"


class RealNode:
    """`start` returns when pods can be scheduled on it; `stop` leaves nothing."""

    def __init__(self, plane: Plane, parts: Parts) -> None:
        name = f"real-{secrets.token_hex(3)}"
        folder = plane.folder / name
        folder.mkdir()
        service = plane.api.call("GET", "/api/v1/namespaces/default/services/kubernetes")
        certificate, key = plane.certificate
        self.plan = Plan(
            name=name,
            folder=str(folder),
            parts=str(parts.folder),
            kubelet=str(parts.kubelet),
            network=_free_network(),
            service=service["spec"]["clusterIP"],
            api_port=plane.server.port,
            kubeconfig=str(plane.kubeconfig),
            authority=str(plane.authority.certificate),
            certificate=str(certificate),
            key=str(key),
        )
        self._plane = plane
        self._parts = parts
        self._daemons: list[Daemon] = []
        self._first = 0  # its first process, as this machine counts

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def names(self) -> list[str]:
        """As of process nodes: those that run."""
        return [self.name] if self._first else []

    def start(self) -> None:
        _remove_cgroups()
        plan = self.plan
        where = plan.write()
        real_image.write(self._parts, Path(plan.path(IMAGE_FILE)))
        spaces = ("--mount", "--propagation=private", "--pid", "--mount-proc", "--net", "--ipc")
        command = ["unshare", *spaces, "--fork", "--kill-child", sys.executable]
        node = self._run(_NODE, *command, "-m", "tests.kubernetes.plane.real_init", str(where))
        self._first = _only_child(node)
        node.await_ready(lambda: _has_own_network(self._first))
        _ip(f"link add {plan.name} type veth peer name {LINE} netns {self._first}")
        _make_cgroups(plan.name)
        _ip(f"address add {plan.machine_ip}/24 dev {plan.name}")
        _ip(f"link set {plan.name} up")
        node.await_ready(Path(plan.path(NETWORK_UP)).exists)
        module = (sys.executable, "-m", "tests.kubernetes.plane.real_gateway")
        self._run("gateway", *module, str(where), str(self._first))
        self._await_ready(node)

    def stop(self) -> None:
        """Containers end at once: take the pods away first to see them end well."""
        _ip(f"link delete {self.name}", missing_ok=True)
        for daemon in self._daemons:
            if daemon.name == _NODE and self._first and daemon.running():
                os.kill(self._first, signal.SIGKILL)
                daemon.process.wait()  # which it does when all of the node's processes have ended
            else:
                daemon.kill()
        self._daemons.clear()
        self._first = 0
        _remove_cgroups()
        shutil.rmtree(self.plan.folder, ignore_errors=True)
        self._plane.api.delete(f"/api/v1/nodes/{self.name}")

    def words(self) -> str:
        """The ends of its logs, for whoever wonders."""
        logs = sorted(Path(self.plan.folder).glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _run(self, name: str, *command: str) -> Daemon:
        env = {**os.environ, "PYTHONPATH": str(_ROOT)}
        daemon = Daemon(name, command, Path(self.plan.path(f"{name}.log")), env)
        self._daemons.append(daemon)
        return daemon

    def _await_ready(self, node: Daemon) -> None:
        """The taint that new nodes have goes a moment after."""
        deadline = time.monotonic() + _READY_SECONDS
        while node.running() and (left := deadline - time.monotonic()) > 0:
            for event, thing in self._plane.api.watch("/api/v1/nodes", min(left, 1.0)):
                if event != "LISTED" and thing["metadata"]["name"] == self.name and _ready(thing):
                    return
        raise StartFailed(f"{self.name} is not ready after {_READY_SECONDS:g} s\n{self.words()}")


def _ready(node: Json) -> bool:
    conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", [])}
    troubles = [t for t in node["spec"].get("taints", []) if "node.kubernetes.io/" in t["key"]]
    return conditions.get("Ready") == "True" and not troubles


def _free_network() -> str:
    """One that this machine has no way to, other than by default; seldom the same for two runs."""
    routes = json.loads(_ip("-json -4 route show table all"))
    words = [route["dst"] for route in routes if route["dst"] != "default"]
    taken = [IPv4Network(word, strict=False) for word in words]
    free = [
        text for text in _NETWORKS if not any(IPv4Network(text).overlaps(other) for other in taken)
    ]
    if not free:
        raise StartFailed("no network is free for the pods of a real node")
    return secrets.choice(free)


def _ip(words: str, missing_ok: bool = False) -> str:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, timeout=30)
    if done.returncode != 0 and not missing_ok:
        raise StartFailed(f"ip {words}: {done.stderr.strip()}")
    return done.stdout


def _only_child(daemon: Daemon) -> int:
    found: list[str] = []
    pid = daemon.process.pid

    def there() -> bool:
        found[:] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return bool(found)

    daemon.await_ready(there)
    return int(found[0])


def _has_own_network(pid: int) -> bool:
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def _make_cgroups(name: str) -> None:
    """In each hierarchy, or in the one there is."""
    one = (_CGROUPS / "cgroup.procs").exists()
    for top in [_CGROUPS] if one else _CGROUPS.iterdir():
        if top.is_dir() and not top.is_symlink():
            (top / CGROUP / name).mkdir(parents=True)


def _remove_cgroups() -> None:
    """Of nodes that are gone, which have no line any more; also of one that was killed before."""
    deadline = time.monotonic() + _EMPTYING_SECONDS
    while left := [
        top
        for up in _cgroup_parents()
        for top in up.glob("real-*")
        if not Path("/sys/class/net", top.name).exists()
    ]:
        for top in left:
            for place, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(place)
        if time.monotonic() > deadline:
            return
    for parent in _cgroup_parents():
        with contextlib.suppress(OSError):  # another node's is in it
            os.rmdir(parent)


def _cgroup_parents() -> list[Path]:
    return [path for path in (_CGROUPS / CGROUP, *_CGROUPS.glob(f"*/{CGROUP}")) if path.exists()]
