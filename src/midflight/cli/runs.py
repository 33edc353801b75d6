"""Which training a name means, and its coordinator, for the verbs that are about one.

A run and jobs of several namespaces may have one name. What trains wins over what has ended, then
what began last; `-n` means a job in that namespace and nothing else. Where several could be meant,
it is said which one was taken. On a cluster only the launcher's pod reaches the coordinator:
`run_in_pod` runs the verb there.
"""

import asyncio
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from midflight.backoff import LOOK
from midflight.cli import common_flags, contexts, jobs, messages
from midflight.cli.cluster import connect_if_running, is_kubernetes, kubernetes
from midflight.console import say
from midflight.controller.spec import DEFAULT_NAMESPACE
from midflight.coordinator.client import CoordinatorClient
from midflight.deadlines import RESTART
from midflight.errors import MidflightError, NotFound, Unreachable
from midflight.home import home
from midflight.protocol.messages import Status
from midflight.protocol.views import JobView
from midflight.python310 import RUN_MODULE
from midflight.run.dial import call_async
from midflight.run.hosted import hosted
from midflight.run.record import OVER, last_status
from midflight.rundir import RunDir, check_name


@dataclass(frozen=True)
class Training:
    name: str
    folder: RunDir
    namespace: str | None = None  # None: a run, which has none

    def __str__(self) -> str:
        if self.namespace is None:
            return f"the run {self.name}"
        return f"the job {self.name} in namespace {self.namespace}"

    @property
    def ledgers(self) -> Path:
        return Path(self.folder.read_spec().ledger or self.folder.ledgers)

    @property
    def began(self) -> float:
        try:
            return (self.folder.path / "spec.json").stat().st_mtime
        except FileNotFoundError:  # a job that does not train yet
            return 0.0


def find_training(name: str, namespace: str = "") -> Training:
    """As `choose_training`; Unreachable also if it does not train yet."""
    found = choose_training(name, namespace)
    if not found.folder.has_spec:
        raise Unreachable(f"{found} does not train now; see `{messages.program()} get {name}`")
    return found


def choose_training(name: str, namespace: str = "") -> Training:
    """The training on this machine; `namespace`: what -n says. Unreachable if there is none."""
    found = _candidates(check_name(name), namespace)
    if not found:
        known = ", ".join(known_runs()) or "none yet"
        where = f"no job {name!r} trains in namespace {namespace}" if namespace else (
            f"no run or job is named {name!r}; known runs: {known}"
        )  # fmt: skip
        raise Unreachable(where)
    if len(found) > 1:
        found.sort(key=lambda each: (is_live(each), each.began), reverse=True)
        others = ", ".join(map(str, found[1:]))
        messages.info(f"{name} means {found[0]}; there is also {others}")
    return found[0]


def _candidates(name: str, namespace: str) -> list[Training]:
    inside = hosted(os.environ)
    if inside is not None and inside.job == name:
        return [Training(name, RunDir(inside.run_folder), namespace or DEFAULT_NAMESPACE)]
    root = home(os.environ)
    spaces = [path.parent.name for path in (root / "jobs").glob(f"{namespace or '*'}/{name}")]
    space = namespace or DEFAULT_NAMESPACE
    if space not in spaces and _ask_server(space, name) is not None:
        spaces.append(space)  # it has no folder before there is a node for it
    found = [Training(name, RunDir(root / "jobs" / each / name / "run"), each) for each in spaces]
    run = Training(name, RunDir.of(name, os.environ))
    return [*found, run] if run.folder.has_spec and not namespace else found


def _ask_server(namespace: str, name: str) -> JobView | None:
    client = None if is_kubernetes() else connect_if_running()
    try:
        return None if client is None else client.job(namespace, name)
    except NotFound:
        return None


def is_live(training: Training) -> bool:
    """Whether its coordinator answers, or it is a job that is about to have one."""
    if not training.folder.has_spec:
        job = _ask_server(training.namespace or "", training.name)
        return job is not None and job["endTime"] is None
    try:
        return asyncio.run(client_of(training.folder).status()).phase not in OVER
    except MidflightError:
        return False


def is_live_run(name: str, namespace: str) -> bool:
    run = not namespace and name in known_runs()
    return run and is_live(Training(name, RunDir.of(name, os.environ)))


def known_runs() -> list[str]:
    return sorted(path.parent.name for path in (home(os.environ) / "runs").glob("*/spec.json"))


def known_run(name: str) -> RunDir:
    """The folder of the run of that name; NotFound, with what to do, if there is none."""
    folder = RunDir.of(name, os.environ)
    if folder.has_spec:
        return folder
    if _candidates(name, ""):
        raise NotFound(f"{name} is a job, not a run; `{messages.program()} delete {name}` ends it")
    raise NotFound(f"no run is named {name!r}; known runs: {', '.join(known_runs()) or 'none yet'}")


def client_of(folder: RunDir) -> CoordinatorClient:
    return CoordinatorClient(partial(call_async, folder))


def current_status(folder: RunDir) -> Status:
    """As the coordinator says, or else as it was last saved."""
    return asyncio.run(_current_status(folder))


async def _current_status(folder: RunDir) -> Status:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + RESTART
    while True:
        try:
            return await client_of(folder).status()
        except MidflightError as error:
            last = last_status(folder)
            if last is not None and last.phase in OVER:
                return last
            if loop.time() >= deadline:
                if last is None:
                    raise Unreachable(str(error)) from None
                say(f"warning: {error}; this is what was last saved")
                return last
        await asyncio.sleep(LOOK)


def run_in_pod(namespace: str, job: str, words: Sequence[str]) -> int | None:
    """`midflight WORDS` beside the job's coordinator; None if a training of this machine is meant.

    A run of this machine is meant while it trains, or if the cluster has no such job.
    """
    from midflight.kubernetes.names import RUNTIME_DIR

    if (cluster := kubernetes()) is None:
        return None
    if is_live_run(job, namespace):
        return None
    space = namespace or contexts.namespace(common_flags.config())
    try:
        found = jobs.check(cluster, space, job)
    except (NotFound, Unreachable):
        if not namespace and job in known_runs():
            return None
        raise
    command = (
        f'PYTHONPATH="{RUNTIME_DIR}${{PYTHONPATH:+:$PYTHONPATH}}" '
        f'exec python3 -c "{RUN_MODULE}" midflight.cli {shlex.join(words)}'
    )
    return cluster.attach(found, found["chiefName"], "", ["sh", "-c", command])
