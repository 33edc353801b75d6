"""The launcher's life: coordinator first, then agents, until the job is over or someone says stop.

Whatever happens, nothing that was started here is left when this ends. After the first Ctrl-C the
coordinator has a few seconds to end the job in good order; after the second, or when they are
over, everything is killed. Where another launcher can take the run up, SIGTERM ends this launcher
and not the job: its machine is needed elsewhere, and the workers train on until the next one comes.
"""

import asyncio
import contextlib
import signal
import time
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from midflight.console import say
from midflight.coordinator.client import CoordinatorClient
from midflight.coordinator.core.state import Phase
from midflight.coordinator.exit_codes import REPLACED
from midflight.deadlines import AGENTS_END, AGENTS_END_SOON, TRAINING_END
from midflight.errors import ConnectionLost, JobFailed, MidflightError, StoreError
from midflight.processes import kill_group
from midflight.protocol.messages import HostsChanged
from midflight.run.addresses import LOOPBACK, is_local, reach
from midflight.run.agents import AgentPlan, Agents
from midflight.run.claim import Claim, await_successor
from midflight.run.coordinator import CoordinatorKeeper
from midflight.run.dial import call_async
from midflight.run.discovery import Discovery
from midflight.run.hosted import HostfileDiscovery
from midflight.run.hosts import Hosts
from midflight.run.interrupts import EXIT_CODES, Interrupts
from midflight.run.options import Options
from midflight.run.record import read_record, write_record
from midflight.store.urls import open_store

DISCOVERY_SECONDS = 1.0  # after which hosts are told again, even if they are the same
_OVER = {Phase.ENDING.value, Phase.SUCCEEDED.value, Phase.FAILED.value}


class HostSource(Protocol):
    """Whatever says which hosts there are, asked again after each pause."""

    pause: float

    async def look(self) -> Hosts:
        """The hosts of this moment; JobFailed, with the reason, if that cannot be said."""
        ...


class Supervisor:
    def __init__(self, options: Options, claim: Claim, source: HostSource | None = None) -> None:
        """`source`: where hosts come from, if neither the options nor a job say so."""
        self._source = source
        self._options = options
        self._claim = claim
        self._folder = options.folder
        self._coordinator: CoordinatorKeeper | None = None
        self._agents: Agents | None = None

    async def run(self) -> int:
        """The exit code, once everything is gone."""
        if self._claim.succeeded:
            say(f"the run {self._options.spec.name} has succeeded already; there is nothing to do")
            return 0
        interrupts = Interrupts()
        self._introduce()
        work = asyncio.create_task(self._work())
        patience = AGENTS_END
        try:
            await _first_of(work, interrupts.first)
            if work.done():
                return work.result()
            if self._means_leave(interrupts.first.result()):
                patience = 0.0
                return await self._leave(work, interrupts)
            code = await self._stop(work, interrupts)
            patience = AGENTS_END_SOON if work.done() else 0.0
            return code
        finally:
            await self._clear_up(work, patience)

    async def _work(self) -> int:
        hosts = await self._first_hosts()
        hosted = self._options.hosted is not None  # whose nodes are wherever the launcher is
        elsewhere = next((host for host in hosts if not hosted and not is_local(host)), None)
        listen = self._options.listen or f"{LOOPBACK if elsewhere is None else '0.0.0.0'}:0"
        self._coordinator = CoordinatorKeeper(
            self._folder,
            self._options.spec.name,
            self._claim.store,
            listen,
            self._options.coordinator_flags,
        )
        job = asyncio.create_task(self._coordinator.keep())
        life = asyncio.create_task(self._host_life(hosts, elsewhere))
        successor = asyncio.create_task(self._replaced())
        try:
            await _first_of(job, life, successor)
            if successor.done():
                return successor.result()
            if life.done():
                life.result()  # an error of its own ends the run
            await _first_of(job, successor)
            return job.result() if job.done() else successor.result()
        finally:
            for task in (job, life, successor):
                task.cancel()
            await asyncio.gather(job, life, successor, return_exceptions=True)

    async def _replaced(self) -> int:
        """Ends when another launcher has taken the run up; never where only this machine can."""
        mark, name = self._claim.mark, self._options.spec.name
        while mark is not None:
            try:
                with open_store(self._claim.store) as store:  # closing it ends the thread
                    await asyncio.to_thread(await_successor, store, name, mark)
            except StoreError:  # away for a while; without it nobody else can come either
                await asyncio.sleep(DISCOVERY_SECONDS)
                continue
            say(f"another launcher has resumed run {name}; leaving it to that launcher")
            return REPLACED
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await never

    async def _host_life(self, hosts: Hosts, elsewhere: str | None) -> None:
        """Start agents once the coordinator answers, and follow discovery if there is one."""
        assert self._coordinator is not None
        await self._coordinator.answering.wait()
        address = self._folder.read_address()
        assert address is not None
        plan = AgentPlan(
            self._options.spec,
            str(self._folder.token_file.absolute()),
            reach(address, elsewhere),
            self._options.warm,
            self._options.verbose,
            self._options.hosted.own_host if self._options.hosted else None,
        )
        self._agents = Agents(plan, self._note_agents, self._job_is_over)
        self._agents.adopt(self._claim.agents)
        self._agents.want(self._served_here(hosts))
        if (discovery := self._discovery()) is not None:
            await self._follow(discovery, self._agents)

    def _served_here(self, hosts: Hosts) -> Hosts:
        """The hosts whose agents are this launcher's to start."""
        hosted = self._options.hosted
        if hosted is None:
            return hosts
        return {host: slots for host, slots in hosts.items() if host == hosted.own_host}

    def _introduce(self) -> None:
        name, former = self._options.spec.name, self._claim.former
        if former is not None:
            say(
                f"resuming run {name} where it was interrupted "
                f"({former.phase.value}, step {former.best_step} or later); "
                "its original options apply"
            )
        elif not self._options.name_was_given:
            say(f"this run is named {name}")

    # --- discovery --------------------------------------------------------------------------

    async def _first_hosts(self) -> Hosts:
        discovery = self._discovery()
        return self._options.hosts if discovery is None else await discovery.look()

    def _discovery(self) -> HostSource | None:
        if self._source is not None:
            return self._source
        slots = self._options.slots_per_host
        if self._options.hosted is not None:
            return HostfileDiscovery(self._options.hosted.hostfile, slots)
        if self._options.discovery is not None:
            return Discovery(self._options.discovery, slots)
        return None

    async def _follow(self, discovery: HostSource, agents: Agents) -> None:
        failing = False
        told: Hosts = {}
        told_at = 0.0
        while True:
            await asyncio.sleep(discovery.pause)
            try:
                hosts = await discovery.look()
            except JobFailed as error:
                if not failing:
                    say(f"warning: {error}; keeping the hosts that it named before")
                failing = True
                continue
            failing = False
            if hosts != told or time.monotonic() - told_at >= DISCOVERY_SECONDS:
                await self._tell_hosts(hosts)
                told, told_at = hosts, time.monotonic()
            agents.want(self._served_here(hosts))

    async def _tell_hosts(self, hosts: Hosts) -> None:
        """Said anew each time: a coordinator or an agent may have come back meanwhile."""
        try:
            wire = await call_async(self._folder)
        except MidflightError:
            return  # it is being started again, and will be told the next time
        wire.send(HostsChanged(hosts))
        with contextlib.suppress(ConnectionLost):
            await wire.finish()
        wire.close()

    # --- the end ----------------------------------------------------------------------------

    async def _stop(self, work: "asyncio.Task[int]", interrupts: Interrupts) -> int:
        number = interrupts.first.result()
        say(f"stopping {self._options.spec.name} (again to kill at once)")
        if self._agents is not None:
            self._agents.hold()
        if self._coordinator is None:
            work.cancel()
        else:
            graceful = signal.SIGINT if number is signal.SIGINT else signal.SIGTERM
            self._coordinator.stop(graceful)
        await _first_of(work, interrupts.second, timeout=TRAINING_END)
        if work.done() and not work.cancelled() and work.result() == 0:
            return 0  # it had come to its end before it heard of this
        return EXIT_CODES[number]

    def _means_leave(self, number: signal.Signals) -> bool:
        hosted = self._options.hosted
        return number is signal.SIGTERM and hosted is not None and hosted.may_move

    async def _leave(self, work: "asyncio.Task[int]", interrupts: Interrupts) -> int:
        """Let members of this machine go while there is a coordinator that they can tell."""
        say(f"leaving {self._options.spec.name} to the next launcher; its workers keep training")
        work.cancel()  # the coordinator itself goes on
        await asyncio.wait({work})
        if self._agents is not None:
            self._agents.want({})
            left = asyncio.ensure_future(self._agents.end(self._options.spec.grace))
            await _first_of(left, interrupts.second)
            left.cancel()
        return EXIT_CODES[signal.SIGTERM]

    async def _clear_up(self, work: "asyncio.Task[int]", patience: float) -> None:
        work.cancel()
        await asyncio.wait({work})
        if self._coordinator is not None:
            await self._coordinator.kill()
        if self._agents is not None:
            await self._agents.end(patience)
            return
        for pid in self._claim.agents.values():  # found, but not taken over yet
            kill_group(pid)

    async def _job_is_over(self) -> bool:
        try:
            return (
                await CoordinatorClient(partial(call_async, self._folder)).status()
            ).phase in _OVER
        except MidflightError:
            return False  # nobody answers: the coordinator is being started again

    def _note_agents(self, agents: dict[str, int]) -> None:
        write_record(self._folder, replace(read_record(self._folder), agents=agents))


async def _first_of(*futures: "asyncio.Future[Any]", timeout: float | None = None) -> None:
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
