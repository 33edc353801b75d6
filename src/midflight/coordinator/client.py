"""The client of a coordinator: asks for a size, asks how the job does, stops it.

One rule for deadlines: the coordinator's clock decides. A request carries its timeout, and the
coordinator answers every one: until the switch is published it takes the change back in time, and
afterwards it answers when the change is done. So a client waits as long as it hears the
coordinator, which repeats every second how far the request is. When the line breaks it dials again
and asks again under the same id: nothing is done twice, and an answer that was lost is given again.
However long nobody answers, the members may carry out a switch that was published: so only a client
that a person waits for gives up, and says that it does not know.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from midflight import async_timeout, backoff
from midflight.deadlines import CLIENT_SILENCE, STATUS
from midflight.errors import ConnectionLost, ProtocolError, RunOver, Unreachable, UsageError
from midflight.protocol.messages import (
    Progress,
    RequestEnded,
    ResizeRequested,
    Status,
    StatusRequested,
    StopRequested,
)
from midflight.protocol.wire import AsyncWire

_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_AGAIN = (Unreachable, ConnectionLost, UsageError)  # not up yet, or being started again

Dial = Callable[[], Awaitable[AsyncWire]]
"""Opens a wire to the coordinator, wherever it is now.

Raises Unreachable if there is none, and RunOver if there will be none.
"""


@dataclass(frozen=True)
class Patience:
    """How long a client waits for a coordinator that says nothing."""

    reach: float  # seconds until it can be asked at all
    answer: float | None = None  # once it was asked: seconds without a word; None: any number
    asked_before: bool = False  # by somebody who is gone, so that it may know the request


class CoordinatorClient:
    def __init__(self, dial: Dial) -> None:
        self._dial = dial

    async def status(self) -> Status:
        """How the job does now; raises Unreachable if nobody answers soon."""
        try:
            async with async_timeout.timeout(STATUS):
                wire = await self._call()
                try:
                    wire.send(StatusRequested())
                    answer = await wire.receive()
                finally:
                    wire.close()
        except (TimeoutError, ConnectionLost):
            raise Unreachable(f"the coordinator has not answered for {STATUS:g} s") from None
        if not isinstance(answer, Status):
            raise ProtocolError(f"wanted a Status, got {type(answer).__name__}")
        return answer

    async def resize(
        self,
        request: ResizeRequested,
        progress: Callable[[str], None] = lambda line: None,
        patience: Patience | None = None,
    ) -> RequestEnded:
        """How the request ended, by the coordinator's own word.

        Raises Unreachable if it could not be asked in time, if the run is over without an answer,
        or if nobody has answered for too long: then the change may be carried out all the same.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout
        patience = patience or Patience(reach=request.timeout)
        reach_by = loop.time() + patience.reach
        request = replace(request, id=request.id or uuid.uuid4().hex)
        attempt = _Attempt(request, progress, loop.time(), patience.asked_before)
        while True:
            pause = attempt.pause()
            try:
                wire = await self._call()
                try:
                    return await attempt.run(wire, deadline - loop.time())
                finally:
                    wire.close()
            except _AGAIN as error:
                if not attempt.sent and loop.time() + pause >= reach_by:
                    within = f"{patience.reach:.{0 if patience.reach >= 1 else 1}f} s"
                    text = f"the training could not be asked within {within}: {error}"
                    raise Unreachable(text) from None
                if attempt.sent and isinstance(error, RunOver):
                    raise
                silent = loop.time() - attempt.heard_at
                if attempt.sent and patience.answer is not None and silent > patience.answer:
                    raise Unreachable(
                        f"the coordinator has not reported the outcome of the change for "
                        f"{patience.answer:g} s ({error}); it may still be made"
                    ) from None
            await asyncio.sleep(pause)

    async def ask(self, request: ResizeRequested) -> None:
        """Ask, and do not wait for the answer; raises Unreachable if nobody is there."""
        wire = await self._call()
        try:
            wire.send(request)
            await wire.flush()
        finally:
            wire.close()

    async def stop(self, reason: str, *, complete: bool = False) -> None:
        """Returns when the coordinator has hung up. `complete`: the job has done its work."""
        wire = await self._call()
        try:
            wire.send(StopRequested(reason, complete))
            await wire.finish()
        finally:
            wire.close()

    async def _call(self) -> AsyncWire:
        try:
            return await self._dial()
        except ProtocolError as error:  # the port of a run that ended may be another's by now
            raise Unreachable(str(error)) from None


class _Attempt:
    """A request on its way, over as many wires as it takes."""

    def __init__(
        self,
        request: ResizeRequested,
        progress: Callable[[str], None],
        now: float,
        asked_before: bool,
    ) -> None:
        self._request = request
        self._progress = progress
        self._shown = ""
        self._failures = 0  # of attempts to hear something, since it was asked
        self.heard_at = now
        self.sent = asked_before

    def pause(self) -> float:
        """Before the next attempt; as long as it was not asked, a run that starts is not missed."""
        self._failures += self.sent
        return backoff.pause(_PAUSE, _LONGEST_PAUSE, max(self._failures - 1, 0))

    async def run(self, wire: AsyncWire, seconds: float) -> RequestEnded:
        wire.send(replace(self._request, timeout=max(seconds, 0.0)))
        self.sent = True
        while True:
            match await self._hear(wire):
                case Progress(line):
                    if line != self._shown:
                        self._progress(line)
                    self._shown = line
                case RequestEnded() as ended:
                    return ended
                case other:
                    raise ProtocolError(f"a {type(other).__name__} is not an answer to a resize")

    async def _hear(self, wire: AsyncWire) -> object:
        try:
            async with async_timeout.timeout(CLIENT_SILENCE):
                message = await wire.receive()
        except TimeoutError:
            raise ConnectionLost(f"no message for {CLIENT_SILENCE:g} s") from None
        self.heard_at = asyncio.get_running_loop().time()
        self._failures = 0
        return message
