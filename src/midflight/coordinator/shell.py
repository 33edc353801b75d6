"""The coordinator's loop: messages become events, `handle` decides, commands are carried out.

All decisions are in `core`. Here is what has effects: the sockets, the clock, the store. The one
rule of its own: a command marked durable is carried out only after the state that led to it is in
the store. Saving happens in a thread; everything else goes on meanwhile.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable

from midflight import async_timeout
from midflight.coordinator.core import commands as do
from midflight.coordinator.core import events
from midflight.coordinator.core.handle import handle
from midflight.coordinator.core.state import Mode, State, durable
from midflight.coordinator.exit_codes import REPLACED
from midflight.coordinator.flight_log import FlightLog, nowhere
from midflight.coordinator.output import Printer
from midflight.coordinator.peers import Peers
from midflight.coordinator.saved_state import Saves
from midflight.deadlines import AGENTS_LEAVE, PROGRESS
from midflight.errors import Conflict, MidflightError
from midflight.protocol.dialect import environment_of
from midflight.protocol.environment import JOINER, TorchrunEnv
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import (
    Beat,
    Form,
    ProbeMember,
    Progress,
    RequestEnded,
    Shutdown,
    StartMember,
    StopMember,
)
from midflight.protocol.world import World

TICK = 0.1
LAST_SAVE_SECONDS = 60.0  # for the store to take the end of the job
STORE_FIRST = 1.0  # so long, the agents are not told of the end before the store is
PORT_SECONDS = 5.0
ANY_PORT = 29500  # torch's own default


class Shell:
    def __init__(
        self,
        state: State,
        peers: Peers,
        saving: Saves,
        printer: Printer,
        log: FlightLog | None = None,
    ) -> None:
        self.state = state
        self.peers = peers
        self._saving = saving
        self._printer = printer
        self.log = log or FlightLog(nowhere, now())
        self._beats: dict[str, events.Beating] = {}
        self._hosts_heard: set[str] = set()
        self._changed = asyncio.Event()
        self._one_save = asyncio.Lock()
        self._one_port = asyncio.Lock()
        self._ports: dict[str, int] = {}  # where each of the processes started last meets the rest
        self._saved = durable(state)
        self._held: list[tuple[int, do.Command]] = []
        self._round = 0
        self._progress: dict[int, str] = {}  # by the client that waits: how far its request is
        self._tasks: set[asyncio.Task[None]] = set()
        self.retired = False  # somebody else decides from now on
        self.on_elsewhere: Callable[[str], None] | None = None  # None: there is no other place
        self.on_answer: Callable[[int, bool, str], None] | None = None  # for the audit trail
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    # --- events -----------------------------------------------------------------------------

    def beat(self, member: str, said: Beat) -> None:
        heard_at = now()
        self._beats[member] = events.Beating(
            said.step, said.horizon, said.waiting, heard_at, said.moved
        )
        self.log.heard(said, heard_at)

    def elsewhere(self, address: str) -> None:
        """Somebody says where the job of this name is."""
        if self.on_elsewhere is not None and not self.retired:
            self.on_elsewhere(address)

    def host_heard(self, host: str) -> None:
        self._hosts_heard.add(host)

    def dispatch(self, event: events.Event) -> None:
        """Take one event in and carry out what follows from it."""
        if self.retired:
            return
        before = self.state
        self.state, commands = handle(before, event)
        self.log.decided(before, self.state, event)
        self._round += 1
        for command in commands:
            if self._must_wait(command):
                self._held.append((self._round, command))
            else:
                self._carry_out(command)
        if self._held or durable(self.state) != self._saved:
            self._changed.set()

    def _must_wait(self, command: do.Command) -> bool:
        """Whether it waits for the store; what members are told stays in order all the same."""
        match command:
            case do.Tell(durable=durable):
                return durable or any(isinstance(held, do.Tell) for _, held in self._held)
            case do.Stop(durable=durable):
                return durable
            case do.Start() | do.Answer():  # a name that was given out must not be given again
                return True
            case _:
                return False

    async def tick(self) -> None:
        """Pass time, and what was heard meanwhile, to the core."""
        for number in itertools.count():
            await asyncio.sleep(TICK)
            if number % round(PROGRESS / TICK) == 0:
                self._repeat_progress()
            beats, self._beats = self._beats, {}
            heard, self._hosts_heard = frozenset(self._hosts_heard), set()
            self.dispatch(events.Ticked(now(), beats, heard))

    def _repeat_progress(self) -> None:
        """Clients wait as long as they hear that their request is known here."""
        change = self.state.change
        requests = (*self.state.queue, *([change.request] if change is not None else []))
        for ticket in [r.ticket for r in requests if r.ticket is not None]:
            line = self._progress.get(ticket, "waiting for another change to end")
            self.peers.tell_client(ticket, Progress(line))

    # --- saving -----------------------------------------------------------------------------

    async def save(self) -> None:
        """Write the state whenever it has changed, then release what waited for it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._save_once()

    async def save_now(self) -> None:
        """Write what is not written yet, whatever else is under way."""
        await self._save_once()

    async def _save_once(self) -> None:
        async with self._one_save:
            await self._write_and_release()

    async def _write_and_release(self) -> None:
        number, state = self._round, self.state
        if durable(state) != self._saved:
            try:
                await asyncio.to_thread(self._saving.save, state, now())
            except Conflict:
                self._printer.say("another coordinator has taken this job over; leaving", "error")
                self._finish(REPLACED)
                return
            except MidflightError as error:
                self._printer.say(f"the state could not be saved, trying again: {error}", "warning")
                await asyncio.sleep(1.0)
                self._changed.set()
                return
            self._saved = durable(state)
        ready = [command for at, command in self._held if at <= number]
        self._held = [(at, command) for at, command in self._held if at > number]
        for command in ready:
            if not self._overtaken(command):
                self._carry_out(command)

    def _overtaken(self, command: do.Command) -> bool:
        """Several deaths at once make several worlds; only the last needs to be announced."""
        if not isinstance(command, do.Tell) or not isinstance(command.message, Form):
            return False
        forming = self.state.forming
        return forming is None or forming.world != command.message.world

    # --- effects ----------------------------------------------------------------------------

    def _carry_out(self, command: do.Command) -> None:
        match command:
            case do.Tell(members, message):
                self.peers.tell(members, message)
            case do.Start():
                self._spawn(self._start(command))
            case do.Stop(member, host, grace):
                self.peers.tell_agent(host, StopMember(member, grace))
            case do.Probe(member, host):
                self.peers.tell_agent(host, ProbeMember(member))
            case do.Answer(ticket, ok, detail):
                self._progress.pop(ticket, None)
                if self.on_answer is not None:
                    self.on_answer(ticket, ok, detail)
                self.peers.tell_client(ticket, RequestEnded(ok, detail))
            case do.Inform(ticket, line):
                self._progress[ticket] = line
                self.peers.tell_client(ticket, Progress(line))
            case do.Say(line, level):
                self._printer.say(line, level)
            case do.End(code, reason):
                self._spawn(self._end(code, reason))

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        """A start or an end that raised would be waited for for ever; it ends this coordinator."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self.over.done():
            self.over.set_exception(error)

    async def _start(self, command: do.Start) -> None:
        port = await self._port(command)
        for name in command.members:
            member = self.state.members.get(name)
            if member is None:
                continue
            message = StartMember(
                member=name,
                slot=member.slot,
                command=self.state.spec.command,
                run=self.state.spec.name,
                elastic_timeout=self.state.spec.elastic_timeout,
                grace=self.state.spec.grace,
                ledger=self.state.spec.ledger,
                environment=member_environment(self.state, command, name, port),
            )
            # An agent that has hung up comes back and is told then, or its lease ends.
            self.peers.tell_agent(member.host, message)

    async def _port(self, command: do.Start) -> int:
        """A free port on the host of rank 0, for scripts that rendezvous by themselves.

        If some of a world have been told of one, so are those that are started again.
        """
        world = command.world
        if self.state.mode is Mode.ELASTIC or world is None:
            return ANY_PORT  # nobody will use it
        async with self._one_port:
            known = (self._ports[name] for name in world.names if name in self._ports)
            port = next(known, None) or await self._free_port(world.members[0].host)
            self._ports = dict.fromkeys(world.names, port)
        return port

    async def _free_port(self, host: str) -> int:
        try:
            async with async_timeout.timeout(PORT_SECONDS):
                return await self.peers.find_port(host)
        except (TimeoutError, KeyError):
            return ANY_PORT

    async def _end(self, code: int, reason: str) -> None:
        """The store first: agents that have ended tell no successor how their members did."""
        saved = asyncio.get_running_loop().create_task(self._save_the_end())
        await asyncio.wait([saved], timeout=STORE_FIRST)
        grace = 1.0 if code == 0 else 2.0
        self.peers.tell_all_agents(Shutdown(grace, reason or "the job is complete", code))
        with contextlib.suppress(TimeoutError):
            async with async_timeout.timeout(AGENTS_LEAVE):
                await self.peers.agents_gone()
        await saved
        self._finish(code)

    async def _save_the_end(self) -> None:
        """The launcher believes the store: a job whose end is not there would be taken up again."""
        with contextlib.suppress(TimeoutError):
            async with async_timeout.timeout(LAST_SAVE_SECONDS):
                await self._save_once()
                while durable(self.state) != self._saved and not self.over.done():
                    await self._save_once()

    def _finish(self, code: int) -> None:
        if not self.over.done():
            self.over.set_result(code)


def member_environment(state: State, command: do.Start, name: str, port: int) -> dict[str, str]:
    world = command.world or World(0, (state.members[name].member,))
    joins = state.world is not None and any(n not in command.members for n in state.world.names)
    torchrun = TorchrunEnv(
        rank=world.rank(name),
        world_size=world.size,
        local_rank=world.local_rank(name),
        local_world_size=world.local_size(name),
        group_rank=world.host_rank(name),
        group_world_size=world.host_count,
        master_addr=world.members[0].address,
        master_port=port,
        restart_count=command.restarts,
        max_restarts=_restart_limit(state.spec),
        run_id=state.spec.name,
    ).to_env()
    own = {**state.spec.environment, JOINER: "1" if joins else "0"}
    return {**torchrun, **own, **environment_of(state.spec.dialect, world, name, port)}


def _restart_limit(spec: JobSpec) -> int:
    limits = (spec.dialect.max_restarts, spec.reset_limit)
    return next((limit for limit in limits if limit is not None), 1_000_000)


def now() -> float:
    return time.monotonic()
