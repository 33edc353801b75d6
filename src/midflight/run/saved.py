"""What the store still says of a run when its coordinator does not answer."""

import time

from midflight.coordinator.core.state import Phase, State
from midflight.coordinator.core.status import status
from midflight.coordinator.saved_state import Saving, forget
from midflight.protocol.messages import Status
from midflight.store.urls import open_store

ENDED = (Phase.SUCCEEDED, Phase.FAILED)


def saved_state(store_url: str, name: str, secret: bytes) -> State | None:
    """The state as it was last saved; None if the run never got so far."""
    with open_store(store_url) as store:
        return Saving(store, name, secret).load(time.monotonic())


def saved_status(store_url: str, name: str, secret: bytes) -> Status | None:
    state = saved_state(store_url, name, secret)
    return None if state is None else status(state, time.monotonic())


def forget_state(store_url: str, name: str) -> None:
    with open_store(store_url) as store:
        forget(store, name)
