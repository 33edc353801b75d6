"""What is known of a run when its coordinator does not answer.

The launcher notes in the run folder which store was used, and which agents were started: agents may
outlive it, and the store says how the run was doing. Only the launcher that holds the run's lock
writes the notes.
"""

import time
from dataclasses import dataclass, field

from midflight import atomic_file
from midflight.coordinator.core.state import Phase, State
from midflight.coordinator.core.status import status
from midflight.coordinator.saved_state import Saving, forget
from midflight.errors import UsageError
from midflight.protocol import codec
from midflight.protocol.messages import Status
from midflight.rundir import RunDir
from midflight.store.urls import open_store

ENDED = (Phase.SUCCEEDED, Phase.FAILED)
OVER = frozenset(phase.value for phase in ENDED)  # as a Status names them
_FILE = "launch.json"


@dataclass(frozen=True)
class Record:
    store: str
    agents: dict[str, int] = field(default_factory=dict)  # host to process id


def read_record(folder: RunDir) -> Record:
    """What was noted; the defaults if nothing was, or if it cannot be read."""
    try:
        return codec.decode(Record, codec.loads((folder.path / _FILE).read_bytes()))
    except FileNotFoundError:
        return Record(store=folder.store_url)
    except OSError as error:
        raise UsageError(f"cannot read {folder.path / _FILE}: {error.strerror}") from None


def write_record(folder: RunDir, record: Record) -> None:
    try:
        atomic_file.write(folder.path / _FILE, codec.dumps(record))
    except OSError as error:
        raise UsageError(f"cannot write {folder.path / _FILE}: {error.strerror}") from None


def saved_state(store_url: str, name: str, secret: bytes) -> State | None:
    """The state as it was last saved; None if the run never got so far."""
    with open_store(store_url) as store:
        return Saving(store, name, secret).load(time.monotonic())


def last_status(folder: RunDir) -> Status | None:
    """How the run of this folder did when that was last saved; None if it never was."""
    state = saved_state(read_record(folder).store, folder.read_spec().name, folder.read_token())
    return None if state is None else status(state, time.monotonic())


def forget_state(store_url: str, name: str) -> None:
    with open_store(store_url) as store:
        forget(store, name)
