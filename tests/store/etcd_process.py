"""Real etcd servers on loopback ports: started, killed, restarted and always ended by the test."""

import ctypes
import http.client
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def free_port() -> int:
    """Below the range from which the system serves outgoing connections, so that it stays free."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Etcd:
    """A cluster of `size` members under `folder`."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        size: int = 1,
        tls: bool = False,
        options: Sequence[str] = ("--auto-tls",),
    ) -> None:
        """`options`: with `tls`, whose certificate it shows, and which ones it wants to see."""
        self._binary = binary
        self._folder = folder
        self._tls = tls
        self._options = list(options) if tls else []
        self.ports = [free_port() for _ in range(size)]
        self._peers = [f"http://127.0.0.1:{free_port()}" for _ in range(size)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * size

    def url(self, prefix: str = "test", credentials: str = "") -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"etcd{'s' if self._tls else ''}://{credentials}{hosts}/{prefix}"

    def start(self, *members: int) -> None:
        """Starts the members named, or all; returns when the cluster answers."""
        for member in members or range(len(self.ports)):
            self._processes[member] = self._spawn(member)
        deadline = time.monotonic() + 30
        while not any(self._answers(port) for port in self.ports):
            if time.monotonic() > deadline or not any(self._running()):
                raise RuntimeError(f"etcd does not come up:\n{self._last_words()}")
            time.sleep(0.05)  # etcd has no event to await

    def kill(self, member: int = 0) -> None:
        process = self._processes[member]
        if process is not None:
            process.kill()
            process.wait()
            self._processes[member] = None

    def stop(self) -> None:
        for member in range(len(self.ports)):
            self.kill(member)
        shutil.rmtree(self._folder, ignore_errors=True)

    def leader(self) -> int:
        for member, port in enumerate(self.ports):
            status = self.ask(port, "/v3/maintenance/status", {})
            if status["leader"] == status["header"]["member_id"]:
                return member
        raise RuntimeError("no leader")

    def ask(self, port: int, path: str, body: Json) -> Json:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                raise OSError(f"{path}: {text!r}")
            answer: Json = json.loads(text)
            return answer
        finally:
            connection.close()

    def certificate(self) -> Path:
        return next(self._folder.glob("0.etcd/fixtures/client/cert.pem"))

    def _running(self) -> list[bool]:
        return [process is not None and process.poll() is None for process in self._processes]

    def _answers(self, port: int) -> bool:
        if self._tls:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _spawn(self, member: int) -> subprocess.Popen[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        client = f"http{'s' if self._tls else ''}://127.0.0.1:{self.ports[member]}"
        cluster = ",".join(f"m{index}={peer}" for index, peer in enumerate(self._peers))
        flags = {
            "--name": f"m{member}",
            "--data-dir": str(self._folder / f"{member}.etcd"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": self._peers[member],
            "--initial-advertise-peer-urls": self._peers[member],
            "--initial-cluster": cluster,
        }
        command = [str(self._binary), *(part for flag in flags.items() for part in flag)]
        with (self._folder / f"{member}.log").open("ab") as log:
            return subprocess.Popen(
                command + self._options,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def _last_words(self) -> str:
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in logs)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
