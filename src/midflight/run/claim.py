"""Whether this launcher may run under a name, and whether it begins anew or takes a run up again.

A run folder has one launcher at a time: it holds a lock that ends with the process. Without the
lock's holder a coordinator may still be alive; then the run is alive. If it is not, and the store
says that the run did not come to its end, the run is taken up where it was cut off.

The folder may be gone with the machine that it was on. Then the job's own store and token, which
are elsewhere, are enough to take the run up. The launcher that comes says so in the store, and one
that is still alive somewhere sees it and leaves; should it be cut off from the store, it cannot
save another world either. If the store says that the run succeeded, there is nothing left to do:
only the launcher did not live to tell.
"""

import fcntl
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from midflight.coordinator.core.state import Phase, State
from midflight.coordinator.saved_state import Saving
from midflight.errors import Unreachable, UsageError
from midflight.processes import kill_group
from midflight.protocol.job import JobSpec
from midflight.run.dial import call
from midflight.run.hosted import Hosted
from midflight.run.options import Options
from midflight.run.processes import find_agents
from midflight.run.record import ENDED, Record, forget_state, read_record, saved_state, write_record
from midflight.rundir import FORMER, RunDir, read_token
from midflight.sink import older
from midflight.store.interface import Store
from midflight.store.urls import open_store

_LONG = 3600.0  # seconds; nothing is due meanwhile


@dataclass(frozen=True)
class Claim:
    store: str
    former: State | None  # None: the run begins anew
    agents: dict[str, int]  # of the former launcher, still alive: host to process id
    lock: IO[bytes]  # held as long as this is
    mark: bytes | None = None  # this launcher's, in the store; None: the lock is enough
    succeeded: bool = False  # it has come to its end before, so nothing is to be done


def claim(options: Options) -> Claim:
    """Make the run folder ready, or say why this run cannot be."""
    folder, spec = options.folder, options.spec
    folder.create()
    lock = _lock(folder, spec.name)
    _refuse_if_alive(folder, spec.name)
    noted = read_record(folder)
    agents = find_agents(noted.agents, str(folder.token_file.absolute()))
    store = options.store or noted.store
    former = saved_state(store, spec.name, _known_token(folder, options.hosted))
    if former is not None and _succeeded_elsewhere(former, options):
        return Claim(store, former, {}, lock, succeeded=True)
    if former is None or former.phase in ENDED:
        former = None
        _clear(folder, spec, store, agents)
        agents = {}
        store = options.store or folder.store_url
    else:
        _check_same_work(former, options)
    folder.write_spec(spec if former is None else _taken_up(former.spec, spec))
    _provide_token(folder, options.hosted, anew=former is None)
    write_record(folder, Record(store, agents))
    movable = options.hosted is not None and options.hosted.may_move
    return Claim(store, former, agents, lock, _leave_mark(store, spec.name) if movable else None)


def has_launcher(folder: RunDir) -> bool:
    try:
        _lock(folder, "").close()
    except UsageError:
        return True
    return False


def remove_ended(folder: RunDir, before: float) -> float | None:
    """Delete the folder of a run that ended before this time; when that was, or None."""
    ended = max(path.stat().st_mtime for path in folder.path.iterdir() if path.is_file())
    if ended > before or has_launcher(folder):
        return None
    store, name = read_record(folder).store, folder.read_spec().name
    state = saved_state(store, name, folder.read_token())
    if state is None or state.phase not in ENDED:
        return None
    forget_state(store, name)
    shutil.rmtree(folder.path)
    return ended


def end_abandoned(folder: RunDir, reason: str) -> None:
    """Kill the agents that a launcher and a coordinator have left behind; the run is over then."""
    spec = folder.read_spec()
    with _lock(folder, spec.name):
        noted = read_record(folder)
        for process in find_agents(noted.agents, str(folder.token_file.absolute())).values():
            kill_group(process)
        with open_store(noted.store) as store:
            saving = Saving(store, spec.name, folder.read_token())
            state = saving.load(time.monotonic())
            if state is not None and state.phase not in ENDED:
                over = replace(state, phase=Phase.FAILED, detail=reason, members={}, exit_code=1)
                saving.save(over, time.monotonic())


def await_successor(store: Store, name: str, mark: bytes) -> None:
    """Returns when another launcher has claimed the run; blocks until then, or raises."""
    key = _mark_key(name)
    view = store.watch(key)
    while key not in view.entries or view.entries[key].value == mark:
        view = store.watch(key, after=view, timeout=_LONG)


def _leave_mark(store_url: str, name: str) -> bytes:
    mark = secrets.token_hex(8).encode()
    with open_store(store_url) as store:
        store.put(_mark_key(name), mark, expect=None)
    return mark


def _mark_key(name: str) -> str:
    return f"jobs/{name}/launcher"


def _succeeded_elsewhere(former: State, options: Options) -> bool:
    """Whether this very run is complete, and the folder of the launcher that saw it is gone.

    In a folder that has had a run, somebody asks for the same once more.
    """
    moved = options.hosted is not None and options.hosted.may_move and not options.folder.has_spec
    same = former.spec.command == options.spec.command
    return moved and same and former.phase is Phase.SUCCEEDED


def _taken_up(former: JobSpec, own: JobSpec) -> JobSpec:
    """What runs is what this launcher was told, whatever the store says."""
    return replace(former, command=own.command, environment=own.environment)


def _known_token(folder: RunDir, hosted: Hosted | None) -> bytes:
    """The run's token, if it has been here before; else one that nobody has used."""
    if hosted is not None and hosted.token_file is not None:
        return read_token(hosted.token_file)
    return folder.read_token() if folder.token_file.exists() else secrets.token_bytes(32)


def _provide_token(folder: RunDir, hosted: Hosted | None, anew: bool) -> None:
    """The job's token stays where it is kept: a secret has no second copy here.

    A run that begins anew has another token than the last of its name. Inside a job the agents
    are there before the launcher, and keep theirs.
    """
    if hosted is None or hosted.token_file is None:
        folder.make_token(anew=anew and hosted is None)
        return
    read_token(hosted.token_file)  # says what is wrong with it
    try:
        folder.token_file.unlink(missing_ok=True)
        folder.token_file.symlink_to(hosted.token_file.absolute())
    except OSError as error:
        raise UsageError(f"cannot write {folder.token_file}: {error.strerror}") from None


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


def _check_same_work(former: State, options: Options) -> None:
    spec, hosted = options.spec, options.hosted
    if former.spec.command != spec.command:
        kept = hosted.store if hosted and hosted.may_move else options.folder.path
        raise UsageError(
            f"the run {spec.name} was interrupted, and its command was "
            f"{' '.join(former.spec.command)!r}; use the same command to resume it, choose another "
            f"--name, or remove {kept} to forget it"
        )


def _clear(folder: RunDir, spec: JobSpec, store: str, agents: dict[str, int]) -> None:
    """Leave nothing of a former run of that name."""
    for process in agents.values():
        kill_group(process)
    forget_state(store, spec.name)
    (folder.path / "address").unlink(missing_ok=True)
    for path in (folder.flight_log, older(folder.flight_log)):
        path.unlink(missing_ok=True)
    _set_aside(Path(spec.ledger or folder.ledgers))


def _set_aside(ledgers: Path) -> None:
    """The ledgers of the former run: the next one may begin where a checkpoint of it was.

    What lies aside already is still wanted if that run had begun so, too.
    """
    present = list(ledgers.glob("*.jsonl"))
    if not present:
        return
    aside, beside = ledgers / FORMER, ledgers / f"{FORMER}.new"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    if aside.is_dir() and any(_has_resumed(path) for path in present):
        aside.rename(beside / FORMER)
    for path in present:
        path.rename(beside / path.name)
    shutil.rmtree(aside, ignore_errors=True)
    beside.rename(aside)


def _has_resumed(ledger: Path) -> bool:
    """Its first line says so."""
    with ledger.open("rb") as file:
        return file.readline(100).startswith(b'{"resumed":')
