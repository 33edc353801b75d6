"""Operators as processes: started beside the test cluster, killed, and started again."""

import os
import re
import sys
import urllib.request
from pathlib import Path

from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.daemons import Daemon
from tests.metric_text import Samples, parsed

NAMESPACE = "midflight-system"
NODE_LOSS = 1  # seconds; half a minute outside of tests


class Operators:
    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._running: dict[str, Daemon] = {}
        self._made = 0
        path = "/api/v1/namespaces"
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        if plane.api.get(f"{path}/{NAMESPACE}") is None:
            plane.api.call("POST", path, space)

    @property
    def names(self) -> list[str]:
        return list(self._running)

    @property
    def leader(self) -> str:
        """As the lease says, whether it lives or not."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/midflight-operator"
        lease = self._plane.api.get(path)
        return str(lease["spec"].get("holderIdentity") or "") if lease else ""

    def process(self, name: str) -> Daemon:
        return self._running[name]

    def start(self) -> str:
        """Its name in the lease. It may not lead yet."""
        self._made += 1
        name = f"operator-{self._made}"
        command = [sys.executable, "-m", "midflight.cli", "operator", "run", "--verbose"]
        command += ["--config", str(self._plane.kubeconfig), "--identity", name]
        command += ["--lease-namespace", NAMESPACE, "--node-loss", str(NODE_LOSS)]
        command += ["--listen", "127.0.0.1:0"]
        self._running[name] = Daemon(name, command, self.log(name), dict(os.environ))
        return name

    def log(self, name: str) -> Path:
        return self._plane.folder / f"{name}.log"

    def metrics(self) -> Samples:
        """Of the one that leads."""
        *_, address = re.findall(r"listens on (\S+)", self.log(self.leader).read_text())
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            return parsed(answer.read().decode())

    def kill(self, name: str) -> None:
        self._running.pop(name).kill()

    def stop(self, name: str) -> None:
        """In good order: its lease is given back."""
        self._running.pop(name).stop()

    def ensure_one(self) -> str:
        """Exactly one runs, whatever a test has done."""
        for name in [n for n in self.names if not self._running[n].running()]:
            self._running.pop(name)
        for name in self.names[1:]:
            self.stop(name)
        return self.names[0] if self.names else self.start()

    def stop_all(self) -> None:
        for name in self.names:
            self.stop(name)

    def bugs(self) -> str:
        """What no operator should ever write."""
        return "".join(
            text
            for n in range(1, self._made + 1)
            if "a bug" in (text := self.log(f"operator-{n}").read_text())
        )
