"""Finding a run by its name, and its coordinator, for the verbs that are about one.

On a cluster only the launcher's pod reaches the coordinator: `run_in_pod` runs the verb there.
"""

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from midflight.cli import common_flags, contexts, jobs, program
from midflight.cli.cluster import connect_if_running, is_kubernetes, kubernetes
from midflight.console import say
from midflight.errors import ConnectionLost, Unreachable
from midflight.home import home
from midflight.protocol.messages import Status
from midflight.protocol.wire import SyncWire
from midflight.run.dial import ask_status, call
from midflight.run.hosted import hosted
from midflight.run.record import read_record
from midflight.run.saved import ENDED, saved_status
from midflight.rundir import RUN_NAME, RunDir, check_name

PATIENCE = 5.0  # seconds for a coordinator that is being started again
OVER = {phase.value for phase in ENDED}


def find_run(name: str) -> RunDir:
    """A run that was started by itself, or else the run inside a job of that name."""
    inside = hosted(os.environ)
    if inside is not None and inside.job == name:
        return RunDir(inside.run_folder)
    folder = RunDir.of(name, os.environ)
    for found in (folder, *(RunDir(job / "run") for job in job_folders(name))):
        if (found.path / "spec.json").exists():
            return found
    if names_a_job([name]):
        raise Unreachable(f"the job {name} does not train now; see `{program.name()} get {name}`")
    known = ", ".join(known_runs()) or "none yet"
    raise Unreachable(f"no run is named {name!r}; known runs: {known}")


def job_folders(name: str) -> list[Path]:
    """Where the server keeps jobs of that name: one at most in each namespace."""
    return sorted((home(os.environ) / "jobs").glob(f"*/{check_name(name)}"))


def names_a_job(words: Iterable[str]) -> bool:
    """Whether one is a job of the server's, which has no folder before there is a node for it."""
    names = [word for word in words if RUN_NAME.fullmatch(word)]
    if any(job_folders(name) for name in names):
        return True
    if not names or not {*names}.isdisjoint(known_runs()):
        return False
    if is_kubernetes():  # where there are no runs, and listing all jobs may not be allowed
        return True
    client = connect_if_running()
    return client is not None and any(job["name"] in names for job in client.jobs("*"))


def known_runs() -> list[str]:
    return sorted(path.parent.name for path in (home(os.environ) / "runs").glob("*/spec.json"))


def call_run(folder: RunDir) -> SyncWire | Status:
    """A wire to the run's coordinator; its last status instead if the run is over."""
    try:
        return call(folder)
    except Unreachable:
        last = last_status(folder)
        if last is not None and last.phase in OVER:
            return last
    return call(folder, PATIENCE)


def current_status(folder: RunDir) -> Status:
    """As the coordinator says, or else as it was last saved."""
    try:
        answer = call_run(folder)
        return answer if isinstance(answer, Status) else ask_status(answer)
    except (Unreachable, ConnectionLost) as error:
        last = last_status(folder)
        if last is None:
            raise
        say(f"warning: {error}; this is what was last saved")
        return last


def last_status(folder: RunDir) -> Status | None:
    """From the store; None if nothing was ever saved."""
    record = read_record(folder)
    return saved_status(record.store, folder.read_spec().name, folder.read_token())


def run_in_pod(namespace: str, job: str, words: Sequence[str]) -> int | None:
    """`midflight WORDS` beside the job's coordinator; None if no cluster is meant."""
    from midflight.kubernetes.names import RUNTIME_DIR

    if (cluster := kubernetes()) is None:
        return None
    space = namespace or contexts.namespace(common_flags.config())
    found = jobs.check(cluster, space, job)
    command = (
        f'PYTHONPATH="{RUNTIME_DIR}${{PYTHONPATH:+:$PYTHONPATH}}" '
        f"exec python3 -P -m midflight.cli {shlex.join(words)}"
    )
    return cluster.attach(found, found["chiefName"], "", ["sh", "-c", command])
