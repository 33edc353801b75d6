"""Whether this launcher may run under a name, and whether it begins anew or takes a run up again.

A run folder has one launcher at a time: it holds a lock that ends with the process. Without the
lock's holder a coordinator may still be alive; then the run is alive. If it is not, and the store
says that the run did not come to its end, the run is taken up where it was cut off.
"""

import fcntl
import shutil
from dataclasses import dataclass
from typing import IO

from midflight.coordinator.core.state import State
from midflight.errors import Unreachable, UsageError
from midflight.protocol.job import JobSpec
from midflight.run.calling import call
from midflight.run.options import Options
from midflight.run.processes import find_agents, kill_session
from midflight.run.record import Record, read_record, write_record
from midflight.run.saved import ENDED, forget_state, saved_state
from midflight.store.rundir import RunDir


@dataclass(frozen=True)
class Claim:
    store: str
    former: State | None  # None: the run begins anew
    agents: dict[str, int]  # of the former launcher, still alive: host to process id
    lock: IO[bytes]  # held as long as this is


def claim(options: Options) -> Claim:
    """Make the run folder ready, or say why this run cannot be."""
    folder, spec = options.folder, options.spec
    folder.create()
    lock = _lock(folder, spec.name)
    _refuse_if_alive(folder, spec.name)
    noted = read_record(folder)
    agents = find_agents(noted.agents, str(folder.token_file.absolute()))
    store = options.store or noted.store
    former = saved_state(store, spec.name)
    if former is None or former.phase in ENDED:
        former = None
        _clear(folder, spec.name, store, agents)
        agents = {}
        store = options.store or folder.store_url
        folder.write_spec(spec)
    else:
        _check_same_work(former, spec, folder)
    folder.make_token()
    write_record(folder, Record(store, agents))
    return Claim(store, former, agents, lock)


def _lock(folder: RunDir, name: str) -> IO[bytes]:
    try:
        lock = (folder.path / "launcher.lock").open("wb")
    except OSError as error:
        raise UsageError(f"cannot write in the run folder {folder.path}: {error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise _already_running(name) from None
    return lock


def _refuse_if_alive(folder: RunDir, name: str) -> None:
    if folder.read_address() is None or not folder.token_file.exists():
        return
    try:
        call(folder).close()
    except Unreachable:
        return
    raise _already_running(name)


def _already_running(name: str) -> UsageError:
    return UsageError(
        f"a run named {name} is already running; choose another --name, "
        f"or see what it does with `midflight status {name}`"
    )


def _check_same_work(former: State, spec: JobSpec, folder: RunDir) -> None:
    if former.spec.command != spec.command:
        raise UsageError(
            f"the run {spec.name} was cut off before its end, and its command was "
            f"{' '.join(former.spec.command)!r}; give the same to take it up again, choose another "
            f"--name, or remove {folder.path} to forget it"
        )


def _clear(folder: RunDir, name: str, store: str, agents: dict[str, int]) -> None:
    """Leave nothing of a former run of that name, but for the token."""
    for process in agents.values():
        kill_session(process)
    forget_state(store, name)
    (folder.path / "address").unlink(missing_ok=True)
    shutil.rmtree(folder.ledgers, ignore_errors=True)
    folder.create()
