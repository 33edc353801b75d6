"""One torchrun process: an agent of the job, a door, a relay, and now and then the coordinator.

The agent works as it does elsewhere, through the relay, and knows nothing of what moves behind it.
A signal makes this node leave: its workers go in good order, and the others train on if enough of
them are left. When nobody else is there, it ends the job.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from midflight import terminal
from midflight.agent.loop import Agent, Surroundings
from midflight.agent.members import Ended
from midflight.agent.settings import Settings
from midflight.compat.torchelastic.environment import base_environment, worker_environment
from midflight.compat.torchelastic.failures import Failure, failure_of
from midflight.compat.torchelastic.hosted import Hosted
from midflight.compat.torchelastic.node_protocol import Arrival, Identity, Meeting
from midflight.compat.torchelastic.options import Options
from midflight.compat.torchelastic.probe import standby_word
from midflight.compat.torchelastic.relay import Relay, Seat
from midflight.compat.torchelastic.rounds import Rounds
from midflight.compat.torchelastic.signpost import Signpost
from midflight.compat.torchelastic.streams import Logs, WorkerStreams
from midflight.console import say
from midflight.coordinator.admission import Throttle, answer_at, report_accept_errors
from midflight.coordinator.core.state import State
from midflight.coordinator.peers import Peers
from midflight.coordinator.saved_state import Saves, read
from midflight.coordinator.shell import now
from midflight.errors import HandshakeRefused, MidflightError, Unreachable, UsageError
from midflight.home import home, make_private
from midflight.protocol.audit import TORCHRUN_AUDIT
from midflight.protocol.messages import KeepState, StartMember
from midflight.protocol.tunnel import TLS

_END_SECONDS = 6.0  # for the coordinator to see the other nodes off
_LAST_SECONDS = 1.0  # the same, when someone waits for the end
_LAST_RESORT = 4.5  # seconds after a signal, whatever is still under way
_MOST_CRASHES = 5  # of coordinators on one node; then the job ends


class TorchrunNode:
    """See `node_protocol.Node`."""

    def __init__(
        self, options: Options, identity: Identity, meeting: Meeting, environ: Mapping[str, str]
    ) -> None:
        self.identity = identity
        self.seat = Seat()
        self.secret = b""
        self.door = ""
        self.kept: KeepState | None = None
        self.hosted: Hosted | None = None
        self._crashes = 0  # of coordinators here
        self.leaving = False
        self.failures: list[Failure] = []
        self._stale = False  # the failures belong to workers that have been replaced since
        self._options = options
        self._meeting = meeting
        self._environ = environ
        self._logs = Logs(options.logs, identity.spec.name, options.role, environ)
        self._folder = Path(tempfile.mkdtemp(prefix="midflight-torchrun-"))  # 0700
        self._servers: list[asyncio.Server] = []
        self._signpost = Signpost(self._show_the_way)
        self._tasks: set[asyncio.Task[None]] = set()
        self._job_code: asyncio.Future[int] | None = None
        self._signal: signal.Signals | None = None
        self._rounds = Rounds(environ.get("LOGLEVEL", ""), options.rendezvous)

    async def run(self) -> int:
        """The exit code, once everything is gone."""
        loop = asyncio.get_running_loop()
        self._job_code = loop.create_future()
        throttle = Throttle(lambda line, level: say(f"{level}: {line}"))
        loop.set_exception_handler(report_accept_errors(throttle))
        relay = Relay(self.seat)
        try:
            self._rounds.attempt()
            arrival = await self._meeting.arrive(self.identity)
            await self._open(arrival)
            self._agent = Agent(self._settings(await relay.open()), _logger(), self._surroundings())
            return await self._life()
        finally:
            relay.close()
            for server in self._servers:
                server.close()
            self._signpost.withdraw()
            for task in self._tasks:
                task.cancel()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._logs.clear_up()

    async def _open(self, arrival: Arrival) -> None:
        self.secret, self.door = arrival.secret, arrival.door
        self.listen_too(arrival.listener)
        if arrival.signpost is not None:
            place = arrival.signpost.getsockname()[:2]
            await self._signpost.stand(arrival.signpost)
            self._spawn(self._signpost.stand_again(place, self._is_a_node_missing))
        token = self._folder / "token"
        token.touch(mode=0o600)
        token.write_bytes(arrival.secret + b"\n")

    async def _life(self) -> int:
        assert self._job_code is not None
        loop = asyncio.get_running_loop()
        agent = asyncio.create_task(self._agent.run())
        await asyncio.sleep(0)  # it has set itself up when it waits for the first time
        for number in self._options.signals:
            loop.add_signal_handler(number, self._on_signal, number)
        attending = asyncio.create_task(self._meeting.attend(self))
        try:
            ends: list[asyncio.Future[Any]] = [agent, attending, self._job_code]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if attending.done():
                attending.result()  # an error of its own ends this node
            if not agent.done():
                self._agent.take_down(0, 0.0)
            code = await self._ended(await agent)
        except UsageError as error:
            raise self._nobody_there(error) from None
        except HandshakeRefused as error:
            raise self._strangers(error) from None
        finally:
            attending.cancel()
            if not agent.done():
                self._agent.leave()
                self._agent.take_down(1, 0.0)
                with contextlib.suppress(MidflightError):
                    await agent
        await self._meeting.depart(self._job_is_over)
        return code

    @property
    def _job_is_over(self) -> bool:
        return self._agent.job_code is not None

    def _nobody_there(self, error: UsageError) -> MidflightError:
        if self.seat.address is not None or self._options.rendezvous.alone:
            return error
        places = ", ".join(map(str, self._options.rendezvous.endpoints))
        patience = self._options.rendezvous.join_timeout
        return Unreachable(
            f"no torchrun answers at --rdzv-endpoint {places} within {patience:g} s; start one "
            "there with the same --rdzv-id, or name another endpoint"
        )

    def _strangers(self, error: HandshakeRefused) -> MidflightError:
        return HandshakeRefused(
            f"{self.seat.address} belongs to a job with another --rdzv-id, or another secret in "
            f"MIDFLIGHT_TOKEN_FILE ({error})"
        )

    async def _ended(self, code: int) -> int:
        """The agent is gone: how this node ends."""
        job_code = self._agent.job_code
        assert self._job_code is not None
        if job_code is None and self._job_code.done():
            job_code = self._job_code.result()
        if self.hosted is not None:
            if job_code is None:
                await self.hosted.retire(self.identity.name)
                self.hosted = None  # whoever looks now finds nobody who decides here
            else:
                patience = _END_SECONDS if self._signal is None else _LAST_SECONDS
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.hosted.over(), patience)
        if self._signal is not None and job_code != 0:
            return 128 + int(self._signal)
        return code if job_code is None else job_code

    @property
    def told_why(self) -> str:
        """Why the job failed, in the words of another node; "" if it was told here."""
        return "" if self.hosted is not None or not self._agent.job_code else self._agent.job_reason

    # --- what a meeting may ask -------------------------------------------------------------

    @property
    def met(self) -> bool:
        return self._agent.met

    def kept_state(self) -> State | None:
        if self.kept is None:
            return None
        return read(self.kept.state.encode(), now(), self.identity.spec.name, self.secret)

    def host(
        self, state: State, make_saving: Callable[[Peers], Saves], lost: Iterable[str]
    ) -> Hosted:
        tls = self._environ.get(TLS) == "1"
        hosted = Hosted(state, self.secret, make_saving, audit_file(self._environ), tls=tls)
        self.hosted = hosted
        for name in lost:
            hosted.lose_host(name)
        self.seat.take(self.door)
        self._spawn(self._until_over(hosted))
        return hosted

    def listen_too(self, listener: socket.socket) -> None:
        self._spawn(self._listen(listener))

    def job_ended(self, code: int) -> None:
        if self._job_code is not None and not self._job_code.done():
            self._job_code.set_result(code)

    async def _listen(self, listener: socket.socket) -> None:
        self._servers.append(await answer_at(listener, self._answer))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.hosted is not None:
            await self.hosted.door.serve(reader, writer)
        else:
            await self._show_the_way(reader, writer)

    async def _show_the_way(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = self.seat.address
        is_there = self.hosted is not None or there != self.door
        writer.write(standby_word(there if is_there else None))
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    def _is_a_node_missing(self) -> bool:
        state = self.hosted.shell.state if self.hosted is not None else self.kept_state()
        hosts = state.hosts.values() if state is not None else ()
        return sum(host.connected or host.awaited for host in hosts) < self._options.max_nodes

    async def _until_over(self, hosted: Hosted) -> None:
        try:
            code = await hosted.over()
        except Exception:  # noqa: BLE001 - a fault of the coordinator's is no fault of the job's
            terminal.err(traceback.format_exc().splitlines())
            self._carry_on(hosted)
            return
        if code is None and self.hosted is hosted:  # replaced: the job goes on elsewhere
            hosted.close()
            self.hosted = None

    def _carry_on(self, failed: Hosted) -> None:
        """Start the coordinator again, from what is kept of it; members and agents come back."""
        failed.close()
        self.hosted = None
        self._crashes += 1
        if self._crashes > _MOST_CRASHES or (failed.is_spread and self.kept is None):
            self.job_ended(1)
            return
        say("warning: the coordinator failed; starting another")
        if (state := self.kept_state()) is not None:  # otherwise it is in etcd, for whoever looks
            again = self.host(state, failed.make_saving, ())
            again.shell.on_elsewhere = failed.shell.on_elsewhere

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the agent --------------------------------------------------------------------------

    def _settings(self, relay: str) -> Settings:
        options = self._options
        return Settings(
            join=relay,
            token_file=str(self._folder / "token"),
            secret=self.secret,
            name=self.identity.name,
            slots=options.nproc,
            address=self.identity.address,
            warm=options.warm,
            grace=options.grace,
            join_timeout=options.rendezvous.join_timeout,
            reconnect_timeout=options.rendezvous.join_timeout,
            verbose=False,
            environ=base_environment(self._environ, options),
            command=options.command,
            adapt=lambda order: worker_environment(
                order, options, self._logs.error_file(order), self._environ
            ),
            door=self.door,
        )

    def _surroundings(self) -> Surroundings:
        return Surroundings(
            signals=False,
            warm_first=True,
            open_outlet=self._open_streams,
            on_end=self._worker_ended,
            keep_state=self._keep,
        )

    def _open_streams(self, order: StartMember) -> WorkerStreams:
        if self._stale:
            self.failures.clear()
            self._stale = False
        self._signpost.withdraw()
        self._rounds.started(order)
        return self._logs.open(order)

    def _worker_ended(self, ended: Ended) -> None:
        self._stale = True
        if ended.code != 0 and not ended.stopped:
            self.failures.append(failure_of(ended, self._logs.error_file(ended.order)))

    def _keep(self, state: KeepState) -> None:
        self.kept = state

    # --- signals ----------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        again, self._signal, self.leaving = self._signal is not None, number, True
        code = 128 + int(number)
        if again:
            self._agent.take_down(code, 0.0)
            return
        asyncio.get_running_loop().call_later(_LAST_RESORT, self._agent.take_down, code, 0.0)
        if self.hosted is not None and not self.hosted.others(self.identity.name):
            self.hosted.stop(code)
            if not self.hosted.shell.peers.agents:
                self._agent.take_down(code, 0.0)
        else:
            self._agent.leave()


def audit_file(environ: Mapping[str, str]) -> Path | None:
    """Of all jobs of this user's whose coordinator is here; None without a home to write to."""
    folder = home(environ)
    try:
        make_private(folder)
    except (OSError, MidflightError):
        return None
    return folder / TORCHRUN_AUDIT if os.access(folder, os.W_OK) else None


def make_name(rank: int | None) -> str:
    """Of this node: by its place if that is fixed, otherwise like no other."""
    if rank is not None:
        return f"node-{rank:05d}"
    host = socket.gethostname().replace(" ", "-") or "node"
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"


def _logger() -> logging.Logger:
    """For the agent. That the coordinator moves is told by whoever carries it on."""
    log = logging.getLogger("midflight.torchrun")
    handler = logging.StreamHandler(terminal.ErrorStream())
    handler.setFormatter(logging.Formatter("midflight: warning: %(message)s"))
    handler.addFilter(lambda record: "coordinator" not in str(record.msg))
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(logging.WARNING)
    return log
