"""Calling a run's coordinator as a client: from the command line, and from the launcher."""

import time

from midflight.errors import MidflightError, ProtocolError, Unreachable
from midflight.protocol.messages import Status, StatusRequested
from midflight.protocol.wire import AsyncWire, SyncWire, dial, dial_blocking
from midflight.run.addresses import reach
from midflight.rundir import RunDir

CALLER = "midflight"
_PAUSE = 0.1
_ANSWER_SECONDS = 3.0


def call(folder: RunDir, patience: float = 0.0) -> SyncWire:
    """A wire to the run's coordinator; asks again for `patience` seconds if nobody answers."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return dial_blocking(
                _address(folder), "client", CALLER, folder.read_token(), _ANSWER_SECONDS
            )
        except MidflightError as error:
            if time.monotonic() >= deadline:
                raise Unreachable(str(error)) from None
        time.sleep(_PAUSE)


async def call_async(folder: RunDir) -> AsyncWire:
    return await dial(_address(folder), "client", CALLER, folder.read_token())


def ask_status(wire: SyncWire) -> Status:
    """Asks, and closes the wire."""
    try:
        wire.send(StatusRequested())
        return _as_status(wire.receive())
    except TimeoutError:
        raise Unreachable(f"the coordinator says nothing for {_ANSWER_SECONDS:g} s") from None
    finally:
        wire.close()


def _as_status(answer: object) -> Status:
    if not isinstance(answer, Status):
        raise ProtocolError(f"wanted a Status, got {type(answer).__name__}")
    return answer


def _address(folder: RunDir) -> str:
    address = folder.read_address()
    if address is None:
        raise Unreachable("its coordinator has not been up yet")
    return reach(address, None).here
