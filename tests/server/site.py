"""A place for a real server process with the fake machine, on a real unix socket."""

import http.client
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import midflight
from midflight.client import Client
from midflight.server.folder import LOG, SOCKET
from midflight.server.startup import running
from tests.run.site import eventually

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(midflight.__file__).parents[1]
FAKE = "tests.server.fake_machine:FakeMachine"


def spec(name: str = "bert", **more: Any) -> dict[str, Any]:
    return {
        "kind": "etjob",
        "name": name,
        "command": "python train.py",
        "workers": 2,
        "min_workers": 1,
        "max_workers": 4,
        **more,
    }


class Site:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.processes: list[subprocess.Popen[str]] = []
        self.env = {
            **os.environ,
            "MIDFLIGHT_HOME": str(home),
            "PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}",
        }
        self.env.pop("MIDFLIGHT_CRASH_AT", None)
        self.env.pop("MIDFLIGHT_METRICS", None)

    def launch(self, **env: str) -> "subprocess.Popen[str]":
        """A server process, whether it will serve or not."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "midflight.server", "--backend", FAKE],
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def serve(self, **env: str) -> Client:
        """A server that answers."""
        process = self.launch(**env)

        def up() -> bool:
            assert process.poll() is None, self.said(process)
            return running(self.home) is not None

        eventually(up)
        client = Client(self.home / SOCKET)
        client.status()
        return client

    def fails(self, **env: str) -> str:
        """What a server says that does not start."""
        process = self.launch(**env)
        said, _ = process.communicate(timeout=30)
        assert process.returncode not in (0, None), said
        assert len(said.splitlines()) == 1, said
        return said

    def said(self, process: "subprocess.Popen[str]") -> str:
        return process.communicate(timeout=10)[0]

    @property
    def process(self) -> "subprocess.Popen[str]":
        return self.processes[-1]

    @property
    def log(self) -> str:
        return (self.home / LOG).read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        code = f"import sys; from midflight.cli.verbs.{arguments[0]} import main; from"
        code += " midflight.console import exit_code_of"
        code += "; sys.exit(exit_code_of(lambda: main(sys.argv[1:])))"
        return subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments[1:]],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=10)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self.path))


def scrape(home: Path) -> str:
    """The metrics, by way of the socket."""
    connection = _Connection(home / SOCKET)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("content-type") == "text/plain; version=0.0.4; charset=utf-8"
        return answer.read().decode()
    finally:
        connection.close()


def ask(home: Path, method: str, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """The status and the JSON of an answer, for what the client would not send."""
    connection = _Connection(home / SOCKET)
    try:
        connection.request(method, f"/api/v1{path}", body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
