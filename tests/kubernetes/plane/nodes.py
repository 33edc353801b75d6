"""Process nodes beside a plane: started, lost, and all ended together."""

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.kubernetes.plane.api import MERGE, Json
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.daemons import Daemon, StartFailed

CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "4"}
_ROOT = Path(__file__).resolve().parents[3]
_DEATH_SECONDS = 10.0


class Nodes:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._running: dict[str, Daemon] = {}

    @property
    def names(self) -> list[str]:
        """Of those that run."""
        return [name for name, node in self._running.items() if node.running()]

    def start(self, *names: str, **options: Mapping[str, str]) -> None:
        """Returns when pods can be scheduled on them. Options: `capacity` and `labels`."""
        if not names:
            return
        capacity = {**CAPACITY, **options.get("capacity", {})}
        listed = self._plane.api.call("GET", "/api/v1/nodes")["items"]
        before = {_boot(node) for node in listed}  # one just lost may still be said to be ready
        for name in names:
            self._running[name] = self._spawn(name, capacity, options.get("labels", {}))
        waiting = set(names)
        for event, node in self._plane.api.watch("/api/v1/nodes", seconds=30):
            if event != "LISTED" and _boot(node) not in before and _schedulable(node):
                waiting.discard(node["metadata"]["name"])
            if not waiting:
                return
        raise StartFailed(f"not ready within 30 s: {sorted(waiting)}; logs in {self._plane.folder}")

    def kill(self, name: str) -> None:
        """As if its machine had lost its power: the pods end with it, and nothing is reported."""
        node = self._running.pop(name)
        children = _children(node.process.pid)
        node.kill()
        _await_deaths(children)

    def remove(self, *names: str) -> None:
        """For good: what was on them is deleted by the cluster."""
        for name in names:
            self.kill(name)
            self._plane.api.delete(f"/api/v1/nodes/{name}")

    def uncordon(self) -> None:
        """Whatever kept pods away from them is taken back."""
        for node in self._plane.api.call("GET", "/api/v1/nodes")["items"]:
            name, spec = node["metadata"]["name"], node["spec"]
            if name in self._running and (spec.get("unschedulable") or spec.get("taints")):
                change = {"spec": {"unschedulable": None, "taints": None}}
                self._plane.api.call("PATCH", f"/api/v1/nodes/{name}", change, MERGE)

    def stop(self) -> None:
        for name in self.names:
            self.kill(name)

    def _spawn(self, name: str, capacity: Mapping[str, str], labels: Mapping[str, str]) -> Daemon:
        plane = self._plane
        certificate, key = plane.certificate
        flags = {
            "kubeconfig": plane.kubeconfig,
            "folder": plane.folder / name,
            "certificate": certificate,
            "key": key,
            "capacity": _joined(capacity),
            "labels": _joined(labels),
        }
        command = [sys.executable, "-m", "tests.kubernetes.plane.node", name]
        command += [f"--{flag}={value}" for flag, value in flags.items()]
        env = {**os.environ, "PYTHONPATH": str(_ROOT)}
        return Daemon(name, command, plane.folder / f"{name}.log", env)


def missing_rights() -> str | None:
    """Why process nodes cannot run here, in a line; None where they can."""
    command = [sys.executable, "-m", "tests.kubernetes.plane.sandbox"]
    tried = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=60)
    if tried.returncode != 0:
        why = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"process nodes need root, with the right to mount overlays: {why}"
    return None


def _schedulable(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and not node["spec"].get("taints")


def _boot(node: Json) -> str:
    return str(node.get("status", {}).get("nodeInfo", {}).get("bootID", ""))


def _joined(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def _children(pid: int) -> list[int]:
    """Descriptors of a process's children, which stay good when it is gone."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            found.append(os.pidfd_open(int(child)))
        except ProcessLookupError:
            continue
    return found


def _await_deaths(descriptors: list[int]) -> None:
    try:
        for descriptor in descriptors:
            if not select.select([descriptor], [], [], _DEATH_SECONDS)[0]:
                raise RuntimeError("a pod has outlived its node")
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
