"""Calling a run's coordinator as a client: from the command line, and from the launcher."""

from midflight.deadlines import DIAL
from midflight.errors import MidflightError, Unreachable
from midflight.protocol.wire import AsyncWire, SyncWire, dial, dial_blocking
from midflight.run.addresses import reach
from midflight.rundir import RunDir

CALLER = "midflight"


def call(folder: RunDir) -> SyncWire:
    """A wire to the run's coordinator; Unreachable if nobody answers."""
    try:
        return dial_blocking(_address(folder), "client", CALLER, folder.read_token(), DIAL)
    except MidflightError as error:
        raise Unreachable(str(error)) from None


async def call_async(folder: RunDir) -> AsyncWire:
    return await dial(_address(folder), "client", CALLER, folder.read_token())


def _address(folder: RunDir) -> str:
    address = folder.read_address()
    if address is None:
        raise Unreachable("its coordinator has not been up yet")
    return reach(address, None).here
