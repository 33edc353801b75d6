"""The command line and its server: what a person waits for, and what the server costs meanwhile.

The journal is filled with a thousand finished jobs beforehand, as the server itself would write
them. Then, with the real program: loading it, `midflight list`, submitting through the API (jobs
that find no room, so that nothing else runs), fifty jobs that run, memory and idle time.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.processes import BenchError
from bench.rows import Row
from bench.usage import cpu_seconds, resident_megabytes
from midflight.backends.local.journal import Journal
from midflight.client import Client
from midflight.controller.events import JobSubmitted
from midflight.controller.handle import handle
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Cluster, Phase
from midflight.errors import NotFound
from midflight.protocol import codec
from midflight.server.startup import ensure

FINISHED = 1000
RUNNING = 50
SUBMITTED = 400
TIMES = 7
IDLE_SECONDS = 10.0


def run() -> list[Row]:
    """One repeat of everything."""
    with tempfile.TemporaryDirectory(prefix="mf-") as folder:
        home = Path(folder)
        _fill(home)
        os.environ["MIDFLIGHT_HOME"] = folder
        client = ensure(home)
        pid = client.status()["pid"]
        try:
            return _measure(client, pid)
        finally:
            with contextlib.suppress(NotFound):  # it did not come so far
                for number in range(RUNNING):
                    client.delete("default", f"run-{number}")
                for number in range(RUNNING):
                    client.wait("default", f"run-{number}", "gone", 120.0)
            _program("down")


def _measure(client: Client, pid: int) -> list[Row]:
    client.simulate_nodes(5, 16)
    loading = median(_seconds(sys.executable, "-c", "import midflight.cli.main") for _ in _TIMES)
    bare = median(_seconds(sys.executable, "-c", "pass") for _ in _TIMES)
    listing = median(_list_seconds() for _ in _TIMES)
    for number in range(RUNNING):
        client.submit(_spec(f"run-{number}", "sleep 1000", gpus=1))
    for number in range(RUNNING):
        client.wait("default", f"run-{number}", "running", 120.0)
    memory = resident_megabytes(pid)
    time.sleep(1.0)
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    idle = cpu_seconds(pid) - before
    began = time.monotonic()
    for number in range(SUBMITTED):
        client.submit(_spec(f"wait-{number}", "true", gpus=1000))
    rate = SUBMITTED / (time.monotonic() - began)
    figures = (
        ("import midflight.cli", 1000 * (loading - bare), "ms"),
        (f"list of {FINISHED} jobs", 1000 * listing, "ms"),
        ("submits", rate, "1/s"),
        (f"memory, {FINISHED} finished and {RUNNING} running", memory, "MB"),
        (f"processor time in {IDLE_SECONDS:g} idle seconds", 1000 * idle, "ms"),
    )
    return [Row("midflight", "cli", 0, 0, metric, value, unit) for metric, value, unit in figures]


_TIMES = range(TIMES)


def _spec(name: str, command: str, gpus: int) -> dict[str, object]:
    spec = Spec(Kind.PYTORCHJOB, name, command, gpus=gpus)
    found: dict[str, object] = codec.encode(spec)
    return found


def _fill(home: Path) -> None:
    """A journal with jobs that have come to their end."""
    cluster = Cluster()
    now = time.time() - 3600
    for number in range(FINISHED):
        spec = Spec(Kind.ETJOB, f"old-{number}", "true", min_workers=1, max_workers=4, workers=3)
        cluster, _ = handle(cluster, JobSubmitted(now + number, spec, f"{number:032x}"))
    jobs = {
        key: replace(job, phase=Phase.SUCCEEDED, started_at=now, ended_at=now + 60, instances={})
        for key, job in cluster.jobs.items()
    }
    home.chmod(0o700)
    journal = Journal(home / "journal.db")
    journal.load()
    journal.save(Cluster(), Cluster(jobs=jobs), [])
    journal.close()


def _program(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "midflight.cli", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"`midflight {' '.join(words)}` failed: {done.stderr}")
    return done.stdout


def _list_seconds() -> float:
    """The whole command, as it is installed, from start to end."""
    program = Path(sys.executable).with_name("midflight")
    return _seconds(str(program), "list")


def _seconds(*words: str) -> float:
    began = time.monotonic()
    code = subprocess.Popen(words, stdout=subprocess.DEVNULL).wait()  # a time limit would poll
    seconds = time.monotonic() - began
    if code != 0:
        raise BenchError(f"{' '.join(words)} ended with code {code}")
    return seconds
