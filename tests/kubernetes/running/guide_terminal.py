"""A person at a terminal, whose kubeconfig names the cluster and the test's own namespace.

No line that is typed says where it goes. Nothing may be started on this machine for it: a verb that
does has gone to the wrong place. Jobs are the `jobs` fixture's to clear away.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from tests.guides.terminal import PATIENCE, Terminal
from tests.kubernetes.plane.api import ApiError
from tests.kubernetes.running.jobs import Jobs


class ClusterTerminal(Terminal):
    def __init__(self, jobs: Jobs, folder: Path) -> None:
        super().__init__(folder)
        self._jobs = jobs
        config = json.loads(jobs.cluster.kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = jobs.namespace
        mine = self.home / "kubeconfig"
        mine.write_text(json.dumps(config))
        self.env |= {"KUBECONFIG": str(mine), "HOME": str(self.home)}
        if (kubectl := jobs.cluster.plane.binaries.kubectl) is not None:
            self.env["PATH"] += f":{kubectl.parent}"

    @contextmanager
    def watches(self, line: str) -> Iterator["Watched"]:
        """A line that does not end by itself, until Ctrl-C."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Watched(process)
        finally:
            process.kill()
            process.communicate()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self._tell())
        left = self.processes()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._home.cleanup()
        assert not left, f"on this machine: {left}"

    def _tell(self) -> str:
        """The last words of the operator and of every pod."""
        jobs, parts = self._jobs, [self._server_log()]
        for name in jobs.pods():
            with suppress(ApiError):  # it has none yet
                text = jobs.cluster.log(jobs.namespace, name, tailLines="30")
                parts.append(f"--- {name} ---\n{text}")
        return "\n".join(parts)

    def _server_log(self) -> str:
        logs = sorted(self._jobs.cluster.plane.folder.glob("operator-*.log"))
        return "\n".join(f"--- {log.name} ---\n{log.read_text()[-3000:]}" for log in logs[-1:])


class Watched:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @property
    def out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def ctrl_c(self) -> tuple[int, str]:
        """Its exit code, and what it had to say on standard error."""
        self._process.send_signal(signal.SIGINT)
        _, err = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, err
