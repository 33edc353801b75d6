"""The members on this host: from the order to start one to the report of its end.

Every order is answered whatever happens, and may be repeated: one to start a member that runs or
has ended already is answered with what became of it. A death is reported at once, with the output
that is there at that moment in front of it. Where a member is started warm or cold is decided
here, by asking the pool of standbys.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from midflight.agent.outlet import OpenOutlet, Outlet, Pipes
from midflight.agent.processes import Channels, Processes, probe
from midflight.agent.settings import Settings
from midflight.agent.standby import Standby, StandbyPool
from midflight.processes import kill_group, send_signal
from midflight.protocol.handover import Work
from midflight.protocol.messages import (
    MemberExited,
    MemberNotStarted,
    MemberProbed,
    MemberStarted,
    RunningMember,
    StartMember,
)

_ENDS_REMEMBERED = 256


@dataclass
class _Member:
    order: StartMember
    pid: int = 0  # 0: waits for a standby
    warm: bool = False
    killer: asyncio.TimerHandle | None = None
    outlet: Outlet | None = None
    stopped: bool = False  # it was told to end


@dataclass(frozen=True)
class Ended:
    """How a member's process ended, for whoever runs this agent."""

    order: StartMember
    pid: int
    code: int
    stopped: bool  # it had been told to


class Members:
    def __init__(
        self,
        settings: Settings,
        processes: Processes,
        pool: StandbyPool,
        say: Callable[[object], None],
        log: logging.Logger,
        open_outlet: OpenOutlet | None = None,
    ) -> None:
        """Without `open_outlet`, what members print is told to the coordinator."""
        self._open_outlet = open_outlet or (lambda order: Pipes(order.member, say))
        self._settings = settings
        self._processes = processes
        self._pool = pool
        self._say = say
        self._log = log
        self._table: dict[str, _Member] = {}
        self._ended: dict[str, MemberExited] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._last_outputs: set[Outlet] = set()
        self.address = ""  # of this host; known when the coordinator has been reached
        self.closed_because = ""  # not empty: nobody is started any more
        self.on_empty: Callable[[], None] = lambda: None
        self.on_end: Callable[[Ended], None] = lambda ended: None

    def __bool__(self) -> bool:
        return bool(self._table)

    def running(self) -> tuple[RunningMember, ...]:
        return tuple(
            RunningMember(name, member.order.slot, member.pid)
            for name, member in self._table.items()
            if member.pid
        )

    @property
    def ended(self) -> tuple[str, ...]:
        """Those whose end is remembered."""
        return tuple(self._ended)

    def start(self, order: StartMember) -> None:
        name = order.member
        if name in self._ended:
            self._say(self._ended[name])
        elif name in self._table:
            if self._table[name].pid:
                self._say(MemberStarted(name, self._table[name].pid, self._table[name].warm))
        elif self.closed_because:
            self._say(MemberNotStarted(name, self.closed_because))
        else:
            member = self._table[name] = _Member(order)
            if self._pool.fits(self._command(order), self._environment(order, warm=True)):
                task = asyncio.create_task(self._start_warm(member))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)
            else:
                self._start(member, None)

    def stop(self, name: str, grace: float) -> None:
        member = self._table.get(name)
        if member is None:
            return
        member.stopped = True
        if not member.pid:
            self._not_started(member, "it was stopped before it had started")
            return
        if grace <= 0:
            kill_group(member.pid)
            return
        send_signal(member.pid, signal.SIGTERM, signal.SIGCONT)  # also if it is stopped
        when = asyncio.get_running_loop().time() + grace
        if member.killer is None or when < member.killer.when():
            if member.killer is not None:
                member.killer.cancel()
            member.killer = asyncio.get_running_loop().call_at(when, kill_group, member.pid)

    def stop_all(self, grace: float) -> None:
        for name in tuple(self._table):
            self.stop(name, grace)

    def probe(self, name: str) -> MemberProbed | MemberExited:
        """How it ended says more than that it is gone, so unseen deaths are looked for first."""
        self._processes.reap()
        member = self._table.get(name)
        if member is None:
            return self._ended.get(name) or MemberProbed(name, "gone")
        found = probe(member.pid) if member.pid else "running"
        if found == "gone":  # it has ended since
            self._processes.reap()
            return self._ended.get(name) or MemberProbed(name, "gone")
        return MemberProbed(name, found)

    async def last_output(self) -> None:
        """Wait for what the ended members' children still hold back; never long."""
        for output in tuple(self._last_outputs):
            await output.closed.wait()

    async def _start_warm(self, member: _Member) -> None:
        standby = await self._pool.take()
        if self._table.get(member.order.member) is member:
            self._start(member, standby)
        elif standby is not None:  # the member was stopped meanwhile
            standby.sock.close()

    def _not_started(self, member: _Member, reason: str) -> None:
        del self._table[member.order.member]
        self._say(MemberNotStarted(member.order.member, reason))
        self._check_empty()

    def _start(self, member: _Member, standby: Standby | None) -> None:
        order = member.order
        try:
            outlet = self._open_outlet(order)
        except OSError as error:
            self._not_started(member, f"its output cannot be opened: {error.strerror or error}")
            return
        try:
            self._launch(member, standby, Channels(outlet.stdout, outlet.stderr))
        except OSError as error:
            outlet.not_started()
            self._not_started(member, _reason(self._command(order), error))
            return
        outlet.started()
        member.outlet = outlet
        self._log.info("%s started, pid %d", order.member, member.pid)
        self._say(MemberStarted(order.member, member.pid, member.warm))

    def _launch(self, member: _Member, standby: Standby | None, channels: Channels) -> None:
        order = member.order

        def on_exit(code: int) -> None:
            self._ended_with(member, code)

        if standby is not None:
            environment = self._environment(order, warm=True)
            work = Work(self._command(order), environment, os.getcwd())
            try:
                standby.hand_over(work, channels.stdout, channels.stderr)
                self._processes.rededicate(standby.pid, on_exit)
            except (OSError, KeyError) as error:  # it died while it waited
                self._log.warning("a standby is gone (%s); %s starts cold", error, order.member)
            else:
                member.pid, member.warm = standby.pid, True
                return
        environment = self._environment(order, warm=False)
        member.pid = self._processes.spawn(self._command(order), environment, channels, on_exit)

    def _command(self, order: StartMember) -> tuple[str, ...]:
        return self._settings.command or order.command

    def _environment(self, order: StartMember, warm: bool) -> dict[str, str]:
        return self._settings.member_environment(order, self.address, warm)

    def _ended_with(self, member: _Member, code: int) -> None:
        name = member.order.member
        if member.killer is not None:
            member.killer.cancel()
        assert member.outlet is not None
        member.outlet.member_died()
        report = MemberExited(name, code, member.outlet.tail)
        self._say(report)
        self._log.info("%s ended with code %d", name, code)
        self._last_outputs = {o for o in self._last_outputs if not o.closed.is_set()}
        self._last_outputs.add(member.outlet)
        self.on_end(Ended(member.order, member.pid, code, member.stopped))
        self._ended[name] = report
        if len(self._ended) > _ENDS_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        del self._table[name]
        self._check_empty()

    def _check_empty(self) -> None:
        if not self._table:
            self.on_empty()


def _reason(words: tuple[str, ...], error: OSError) -> str:
    command = words[0] if words else ""
    if isinstance(error, FileNotFoundError):
        return f"no such command: {command}"
    return f"{command} cannot be started: {error.strerror or error}"
