"""Calling a run's coordinator as a client: from the command line, and from the launcher."""

import asyncio

from midflight.coordinator.audit import this_process
from midflight.deadlines import DIAL
from midflight.errors import MidflightError, RunOver, Unreachable
from midflight.protocol.wire import AsyncWire, SyncWire, dial, dial_blocking
from midflight.run.addresses import reach
from midflight.run.record import OVER, last_status
from midflight.rundir import RunDir


def call(folder: RunDir) -> SyncWire:
    """A wire to the run's coordinator; Unreachable if nobody answers."""
    try:
        return dial_blocking(
            _address(folder), "client", str(this_process()), folder.read_token(), DIAL
        )
    except MidflightError as error:
        raise Unreachable(str(error)) from None


async def call_async(folder: RunDir) -> AsyncWire:
    return await dial(_address(folder), "client", str(this_process()), folder.read_token())


async def call_or_tell_end(folder: RunDir) -> AsyncWire:
    """As `call_async`; raises RunOver if nobody answers and the run's end was saved."""
    try:
        return await call_async(folder)
    except MidflightError as error:
        try:
            last = await asyncio.to_thread(last_status, folder)
        except MidflightError:  # what was saved cannot be read now
            raise error from None
        if last is None or last.phase not in OVER:
            raise
    raise RunOver(f"the run is over ({last.phase}), and the outcome of the change is unknown")


def _address(folder: RunDir) -> str:
    address = folder.read_address()
    if address is None:
        raise Unreachable("its coordinator has not started yet")
    return reach(address, None).here
