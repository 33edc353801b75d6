"""The coordinator's door: lets peers in, and turns what they say into events."""

import asyncio
import contextlib
import itertools
from dataclasses import replace
from typing import Any

from midflight.coordinator.admission import Strangers, Throttle, most_strangers
from midflight.coordinator.audit import AuditTrail, Client, client_of
from midflight.coordinator.core import events
from midflight.coordinator.core.labels import rank
from midflight.coordinator.core.state import Request, State
from midflight.coordinator.core.status import status
from midflight.coordinator.keys import Keys
from midflight.coordinator.output import Printer
from midflight.coordinator.shell import Shell, now
from midflight.deadlines import LONGEST_RESIZE, beat_seconds
from midflight.errors import ConnectionLost, FrameForged, MidflightError, ProtocolError
from midflight.printable import in_one_line
from midflight.protocol import messages as say
from midflight.protocol.wire import AsyncWire, accept

STREAMS = ("stdout", "stderr")
LONGEST_NAME = 253  # characters, as of a host
LATEST = 1e11  # seconds since 1970: in the year 5138
_ABOUT_A_MEMBER = (say.MemberStarted, say.MemberNotStarted, say.MemberExited, say.MemberProbed)


class Placements:
    """On which host each member is, or was: an agent speaks for its own members only."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}  # of members that were spoken of, and may have ended

    def check(self, host: str, member: str, state: State) -> bool:
        """Whether the member is known; raises ProtocolError if it is not on this host."""
        if member in state.members:
            self._hosts[member] = state.members[member].host
        if self._hosts.get(member, host) != host:
            raise ProtocolError(f"{member} is not on host {host}")
        return member in self._hosts


def check_name(hello: say.Hello) -> None:
    """A name is part of lines that people read, and of tables."""
    blank = hello.role != "client" and (not hello.name or any(map(str.isspace, hello.name)))
    if blank or len(hello.name) > LONGEST_NAME or not hello.name.isprintable():
        wanted = f"a printable name without blanks, of at most {LONGEST_NAME} characters"
        raise ProtocolError(f"wanted {wanted}, got {hello.name!r:.40}")


def check_output(output: say.Output) -> None:
    if any("\n" in line for line in output.lines):
        raise ProtocolError("wanted lines of output, got an end of line in one")
    if output.stream not in STREAMS:
        raise ProtocolError(f"wanted {' or '.join(STREAMS)}, got {output.stream!r:.40}")
    if not 0 <= output.at < LATEST:
        raise ProtocolError(f"wanted output of a time in seconds, got {output.at:g}")


class Door:
    def __init__(
        self,
        shell: Shell,
        secret: bytes,
        printer: Printer,
        trail: AuditTrail | None = None,
        *,
        tls: bool = False,
    ) -> None:
        self._shell = shell
        self._secret = secret
        self._tls = tls
        self._printer = printer
        self._trail = trail or AuditTrail(shell.state.spec.name, None)
        shell.on_answer = self._trail.answer_resize
        self._keys = Keys()
        self._placements = Placements()
        self.strangers = Strangers(most_strangers(shell.state.spec.max_np))
        self.refusals = Throttle(lambda line, level: printer.say(line, level))
        self._tickets = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from handshake to end. Nothing a stranger sends stops the job."""
        with contextlib.suppress(asyncio.CancelledError):  # at the end, wherever it stands
            await self._serve(AsyncWire(reader, writer), writer)

    async def _serve(self, wire: AsyncWire, writer: asyncio.StreamWriter) -> None:
        stranger = self.strangers.admit(wire.peer_host, now(), wire.abort)
        if stranger is None:
            self.refusals.say(f"refused a connection from {wire.peer}: too many wait", "warning")
            wire.abort()
            return
        try:
            run = self._shell.state.spec.name
            hello = await accept(wire, self._secret, run, tls=self._tls)
        except (MidflightError, TimeoutError, OSError) as error:
            reason = str(error) or "it did not identify itself in time"
            # One that hangs up by itself may only have looked who is here.
            level = "debug" if isinstance(error, ConnectionLost) else "warning"
            self.refusals.say(f"refused a connection from {wire.peer}: {reason}", level)
            wire.close()
            return
        finally:
            self.strangers.leave(stranger)
        try:
            check_name(hello)
            if hello.role == "agent":
                await self._agent(hello.name, wire)
            elif hello.role == "member":
                await self._member(hello.name, wire)
            else:
                await self._client(hello.name, wire)
        except (ProtocolError, FrameForged) as error:
            who = in_one_line(f"{hello.role} {hello.name:.{LONGEST_NAME}}")
            self._printer.say(f"closed the connection of {who}: {error}", "warning")
        except ConnectionLost:
            pass  # the peer is gone
        finally:
            wire.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _check_open(self) -> None:
        """Whoever came in while another coordinator took over must dial again, and find that."""
        if self._shell.retired:
            raise ConnectionLost("another coordinator has taken over")

    # --- agents -----------------------------------------------------------------------------

    async def _agent(self, name: str, wire: AsyncWire) -> None:
        first = await wire.receive()
        if not isinstance(first, say.AgentJoined):
            raise ProtocolError(f"wanted AgentJoined first, got {type(first).__name__}")
        self._check_open()
        for running in first.members:
            self._placements.check(name, running.member, self._shell.state)
        self._shell.peers.add_agent(name, wire)
        try:
            self._shell.dispatch(
                events.HostJoined(
                    now=now(),
                    host=name,
                    slots=first.slots,
                    address=first.address,
                    members=first.members,
                    door=first.door,
                    ended=frozenset(first.ended),
                )
            )
            while True:
                self._hear_agent(name, wire, await wire.receive())
        finally:
            if self._shell.peers.drop_agent(name, wire):
                self._shell.dispatch(events.HostLost(now(), name))

    def _hear_agent(self, name: str, wire: AsyncWire, message: object) -> None:
        self._shell.host_heard(name)
        match message:
            case say.AgentBeat():
                wire.send(say.AgentBeatHeard())
            case say.Output(member, stream, lines, at):
                check_output(message)
                if self._placements.check(name, member, self._shell.state):
                    self._printer.output(member, self._rank(member), stream, lines, at)
            case say.PortFound(port):
                self._shell.peers.port_found(name, port)
            case say.StateKept(number):
                self._shell.peers.state_kept(name, number)
            case _:
                known = not isinstance(message, _ABOUT_A_MEMBER) or self._placements.check(
                    name, message.member, self._shell.state
                )
                if isinstance(message, say.MemberExited) and known:
                    self._printer.ended(message.member, self._rank(message.member), message.code)
                self._shell.dispatch(_agent_event(name, message))

    def _rank(self, member: str) -> int | None:
        return rank(self._shell.state, member)

    # --- members ----------------------------------------------------------------------------

    async def _member(self, name: str, wire: AsyncWire) -> None:
        first = await wire.receive()
        if not isinstance(first, say.MemberJoined):
            raise ProtocolError(f"wanted MemberJoined first, got {type(first).__name__}")
        self._check_open()
        self._shell.peers.add_member(name, wire)
        try:
            self._shell.dispatch(
                events.Joined(now(), name, first.pid, first.generation, first.step, first.over)
            )
            while True:
                self._hear_member(name, wire, await wire.receive())
        finally:
            if self._shell.peers.drop_member(name, wire):
                self._shell.dispatch(events.Disconnected(now(), name))

    def _hear_member(self, name: str, wire: AsyncWire, message: object) -> None:
        match message:
            case say.Beat():
                self._shell.beat(name, message)
                wire.send(say.BeatHeard(beat_seconds(len(self._shell.state.members))))
            case say.KeySet(generation, key, value):
                self._keys.set(generation, key, value)
            case say.KeyAdd(generation, key, amount, ticket):
                total = self._keys.add(generation, key, amount, (name, ticket))
                wire.send(say.KeyValues(ticket, (total,)))
            case say.KeysWanted(generation, keys, ticket):
                self._keys.want(
                    generation, keys, lambda values: wire.send(say.KeyValues(ticket, values))
                )
            case say.RankKeysWanted(generation, prefix, size):
                self._keys.want_ranks(generation, prefix, size, wire.send_frame)
            case say.MemberPaused():
                self._shell.log.paused(name, message, now())
            case say.MemberLogged():
                self._shell.log.logged(message, now())
            case say.MemberFailed(error, kind):
                self._printer.traceback(name, self._rank(name), error)
                self._shell.dispatch(events.Failed(now(), name, error, kind))
            case _:
                if isinstance(message, say.MemberFinished):
                    self._shell.log.heard(message, now())
                self._shell.dispatch(_member_event(name, message))
                world = self._shell.state.world
                self._keys.forget_before(world.generation if world is not None else 0)

    # --- clients ----------------------------------------------------------------------------

    async def _client(self, name: str, wire: AsyncWire) -> None:
        self._check_open()
        ticket = next(self._tickets)
        client = client_of(ticket, name, wire.peer_host)
        self._shell.peers.clients[ticket] = wire
        try:
            while True:
                self._hear_client(client, wire, await wire.receive())
        finally:
            del self._shell.peers.clients[ticket]

    def _hear_client(self, client: Client, wire: AsyncWire, message: object) -> None:
        match message:
            case say.StatusRequested():
                wire.send(self._status())
            case say.ResizeRequested(to, add, remove, names, timeout, id_, hosts):
                limit = now() + min(max(timeout, 0.0), LONGEST_RESIZE)
                self._trail.ask_resize(client, message)
                request = Request(client.ticket, limit, to, add, remove, names, id=id_, hosts=hosts)
                self._shell.dispatch(events.Asked(now(), request))
            case say.StopRequested(reason, complete):
                self._trail.stop(client.caller, client.place, reason)
                self._shell.dispatch(events.StopAsked(now(), reason, 0 if complete else 1))
            case say.JobLives(address):
                self._trail.move(client, address)
                self._shell.elsewhere(address)
            case say.HostsChanged(hosts):
                self._trail.list_hosts(client, hosts)
                self._shell.dispatch(events.HostsListed(now(), hosts))
            case _:
                raise ProtocolError(f"a client may not say {type(message).__name__}")

    def _status(self) -> say.Status:
        log = self._shell.log
        steps, samples = log.rates(now())
        return replace(
            status(self._shell.state, now()),
            steps_per_second=steps,
            samples_per_second=samples,
            logged=log.values,
        )


def _agent_event(name: str, message: object) -> events.Event:
    match message:
        case say.MemberStarted(member, pid, _):
            return events.Started(now(), member, pid)
        case say.MemberNotStarted(member, reason):
            return events.NotStarted(now(), member, reason)
        case say.MemberExited(member, code, tail):
            return events.Exited(now(), member, code, tail)
        case say.MemberProbed(member, state):
            return events.Probed(now(), member, state)
        case say.AgentLeaving(notice):
            return events.HostNoticed(now(), name, notice)
        case _:
            raise ProtocolError(f"an agent may not say {type(message).__name__}")


def _member_event(name: str, message: Any) -> events.Event:
    match message:
        case say.MemberReady(generation, step, horizon):
            return events.Ready(now(), name, generation, step, horizon)
        case say.MemberNotReady(generation, reason):
            return events.NotReady(now(), name, generation, reason)
        case say.MemberSettled(generation, step):
            return events.Settled(now(), name, generation, step)
        case say.MemberBroke(generation, step, reason):
            return events.Broke(now(), name, generation, step, reason)
        case say.MemberLeaving(notice):
            return events.Noticed(now(), name, notice)
        case say.MemberFinished(step, _):
            return events.Finished(now(), name, step)
        case _:
            raise ProtocolError(f"a member may not say {type(message).__name__}")
