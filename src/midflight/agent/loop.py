"""The agent itself: orders from the coordinator and signals in, exit code out.

It ends in one of four ways, each once its members are gone: the coordinator says Shutdown (0), a
notice by SIGTERM has been used (0), SIGINT (130), or the coordinator stays away and no member is
left (an error from the link). The parts it connects: the link, the members, the pool of standbys,
the processes.
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from midflight.agent.link import Link
from midflight.agent.members import Ended, Members
from midflight.agent.outlet import OpenOutlet
from midflight.agent.processes import Processes
from midflight.agent.settings import MARK, Settings
from midflight.agent.standby import StandbyPool
from midflight.deadlines import KILLED
from midflight.protocol.messages import (
    AgentJoined,
    AgentLeaving,
    FindPort,
    KeepState,
    PortFound,
    ProbeMember,
    Shutdown,
    StartMember,
    StateKept,
    StopMember,
)
from midflight.protocol.wire import AsyncWire

_QUIET_PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class Surroundings:
    """What another program that has an agent inside brings along; the agent's own by default."""

    signals: bool = True  # False: the program hears them, and calls `leave` and `take_down`
    warm_first: bool = False  # join when a standby is ready: until then, others would wait for it
    open_outlet: OpenOutlet | None = None
    on_end: Callable[[Ended], None] = lambda ended: None
    keep_state: Callable[[KeepState], None] = lambda state: None


class Agent:
    def __init__(
        self, settings: Settings, log: logging.Logger, around: Surroundings | None = None
    ) -> None:
        self._settings = settings
        self._log = log
        self._around = around or Surroundings()

    async def run(self) -> int:
        settings, log = self._settings, self._log
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = self._loop.create_future()
        self._code: int | None = None  # None: not told to end yet
        self.job_code: int | None = None  # how the job ended; None: nobody has said
        self.job_reason = ""  # why it ended so
        self.met = False  # whether a coordinator has ever let this agent in
        self._leave_at: float | None = None  # when the notice is used up, by the loop's clock
        self._processes = Processes(f"{MARK}={settings.mark}")
        self._pool = StandbyPool(settings.warm, self._processes, settings.base_environment(), log)
        self._pool.later = settings.warm_later
        self._link = Link(settings, self._greet, self._handle, lambda: bool(self._members), log)
        self._members = Members(
            settings, self._processes, self._pool, self._link.say, log, self._around.open_outlet
        )
        self._members.on_empty = self._end_if_done
        self._members.on_end = self._around.on_end
        self._processes.open()
        if self._around.signals:
            self._loop.add_signal_handler(signal.SIGTERM, self.leave)
            self._loop.add_signal_handler(signal.SIGINT, self.take_down, 130, 0.0)
        link = asyncio.create_task(self._dial())
        try:
            self._pool.open()
            return await self._until_the_end(link)
        finally:
            self._pool.close()
            await self._processes.close()

    async def _dial(self) -> NoReturn:
        if self._around.warm_first:
            await self._pool.warmed()
        await self._link.run()

    async def _until_the_end(self, link: "asyncio.Task[NoReturn]") -> int:
        ends: list[asyncio.Future[Any]] = [link, self._end]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not self._end.done():  # the link has given up
            self.take_down(1, 0.0)
            await self._end
            return await link
        await self._members.last_output()
        link.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await link
        await self._link.finish()
        return self._end.result()

    def _greet(self, wire: AsyncWire) -> list[object]:
        self.met = True
        self._members.address = self._settings.address or wire.own_address
        joined = AgentJoined(
            self._settings.slots,
            self._members.address,
            os.getpid(),
            self._members.running(),
            self._settings.door,
            self._members.ended,
        )
        if self._leave_at is None:
            return [joined]
        return [joined, AgentLeaving(max(0.0, self._leave_at - self._loop.time()))]

    def _handle(self, message: object) -> None:
        match message:
            case StartMember():
                self._members.start(message)
            case StopMember(member, grace):
                self._members.stop(member, grace)
            case ProbeMember(member):
                self._link.say(self._members.probe(member))
            case FindPort():
                self._link.say(PortFound(_free_port()))
            case KeepState(number):
                self._around.keep_state(message)
                self._link.say(StateKept(number))
            case Shutdown(grace, reason, code):
                self._log.info("told to end: %s", reason)
                self.job_code, self.job_reason = code, reason
                self.take_down(0, grace)
            case _:
                self._log.warning("an agent does not expect a %s", type(message).__name__)

    def leave(self) -> None:
        """The host is going away: let the members leave in good order; again: at once."""
        if self._leave_at is not None or self._code is not None:
            self.take_down(0, 0.0)
            return
        grace = self._settings.grace
        self._leave_at = self._loop.time() + grace
        self._code = 0
        self._members.closed_because = f"host {self._settings.name} is leaving"
        if self._link.connected:  # or it is said after the reconnect, with what is left of it
            self._link.say(AgentLeaving(grace))
        self._loop.call_later(grace, self.take_down, 0, 0.0)
        self._end_if_done()

    def take_down(self, code: int, grace: float) -> None:
        """End all members, by force after `grace` seconds, and then the agent."""
        self._code = code
        self._members.closed_because = f"the agent of {self._settings.name} is ending"
        self._members.stop_all(grace)
        self._loop.call_later(grace + KILLED, self._end_now)
        self._end_if_done()

    def _end_if_done(self) -> None:
        if not self._members:
            self._end_now()

    def _end_now(self) -> None:
        if self._code is not None and not self._end.done():
            self._end.set_result(self._code)


def _free_port() -> int:
    """It is used seconds later: taken from below the ports that outgoing connections get."""
    for port in (*random.sample(_QUIET_PORTS, 20), 0):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("", port))
            return int(sock.getsockname()[1])
    raise OSError("no port is free")
