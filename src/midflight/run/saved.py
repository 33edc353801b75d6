"""What the store still says of a run when its coordinator does not answer."""

import time

from midflight.coordinator.core.state import Phase, State
from midflight.coordinator.core.status import status
from midflight.coordinator.saved_state import Saving, forget
from midflight.protocol.messages import Status
from midflight.run.record import read_record
from midflight.rundir import RunDir
from midflight.store.urls import open_store

ENDED = (Phase.SUCCEEDED, Phase.FAILED)
OVER = frozenset(phase.value for phase in ENDED)  # as a Status names them


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
