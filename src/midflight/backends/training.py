"""Asking the training of a job: what it does now, and whether it goes on with another size.

The answers come from the coordinator of the job's run, which `Dial` reaches wherever it is. A size
is asked for absolutely and leavers by name, so that a question whose answer was lost can be asked
again until its time is over. A job that will never have a run is answered for at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from midflight.deadlines import RESIZE_LATE
from midflight.errors import ConnectionLost, MidflightError, ProtocolError, Unreachable, UsageError
from midflight.protocol.messages import (
    Progress,
    RequestEnded,
    ResizeRequested,
    Status,
    StatusRequested,
)
from midflight.protocol.wire import AsyncWire

STATUS_SECONDS = 3.0
NO_TRAINING = "no training takes part: the command does not use midflight run or horovodrun"
_PAUSE = 0.1
_AGAIN = (Unreachable, ConnectionLost, UsageError)  # not up yet, being started again

Dial = Callable[[], Awaitable[AsyncWire]]  # a wire to the run's coordinator; Unreachable if none


@dataclass(frozen=True)
class Wish:
    """`members`, the size to come to; or, if that is None, the hosts whose members leave."""

    members: int | None
    leaving: tuple[str, ...] = ()


async def status(dial: Dial) -> Status | None:
    """What the coordinator says now, None if nobody answers soon."""
    try:
        async with asyncio.timeout(STATUS_SECONDS):
            wire = await _call(dial)
            try:
                return await _ask_status(wire)
            finally:
                wire.close()
    except (MidflightError, TimeoutError):
        return None


async def resize(
    dial: Dial,
    wish: Wish,
    timeout: float,
    progress: Callable[[str], None],
    run_expected: bool = True,
) -> tuple[bool, str]:
    """Whether the training has done as wished, and its words for that. Ends after the timeout.

    `run_expected`: there is a run, or the command is one that starts it, so it is waited for.
    """
    if not run_expected:
        return True, NO_TRAINING
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        try:
            async with asyncio.timeout_at(deadline + RESIZE_LATE):
                return await _once(dial, wish, deadline, progress)
        except TimeoutError:
            return False, f"the training did not say within {timeout:g} s what became of it"
        except _AGAIN as error:
            if loop.time() + _PAUSE >= deadline:
                return False, f"the training could not be asked within {timeout:g} s: {error}"
        except MidflightError as error:
            return False, str(error)
        await asyncio.sleep(_PAUSE)


async def _once(
    dial: Dial, wish: Wish, deadline: float, progress: Callable[[str], None]
) -> tuple[bool, str]:
    wire = await _call(dial)
    try:
        now = await _ask_status(wire)
        left = max(deadline - asyncio.get_running_loop().time(), 0.0)
        request = _request(wish, now, left)
        if request is None:
            return True, f"no member is on {', '.join(wish.leaving) or 'any of them'} any more"
        wire.send(request)
        ended = await _ended(wire, progress)
        return ended.ok, ended.detail
    finally:
        wire.close()


async def _call(dial: Dial) -> AsyncWire:
    try:
        return await dial()
    except ProtocolError as error:  # the port of a run that was cut off may be another's by now
        raise Unreachable(str(error)) from None


def _request(wish: Wish, now: Status, timeout: float) -> ResizeRequested | None:
    """None if there is nothing to ask for."""
    if wish.members is not None:
        return ResizeRequested(wish.members, 0, 0, (), timeout)
    names = tuple(m.name for m in now.members if m.rank is not None and m.host in wish.leaving)
    return ResizeRequested(None, 0, 0, names, timeout) if names else None


async def _ask_status(wire: AsyncWire) -> Status:
    wire.send(StatusRequested())
    answer = await wire.receive()
    if not isinstance(answer, Status):
        raise ProtocolError(f"wanted a Status, got {type(answer).__name__}")
    return answer


async def _ended(wire: AsyncWire, progress: Callable[[str], None]) -> RequestEnded:
    while True:
        match await wire.receive():
            case Progress(line):
                progress(line)
            case RequestEnded() as ended:
                return ended
            case other:
                raise ProtocolError(f"a {type(other).__name__} is no answer to a resize")
