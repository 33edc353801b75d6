"""The agents of this machine's hosts: one per host, started again when it dies.

An agent that ended as it was told to (exit code 0) has left for good, until discovery has taken
its host away and listed it again. A host that is no longer listed is given notice: its agent lets
the members leave, then ends by itself. For hosts elsewhere there is a line that says what to run
there.
"""

import asyncio
import shlex
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from midflight.backoff import CALM, restart_pause
from midflight.console import say
from midflight.deadlines import CHILD_KILLED
from midflight.processes import kill_group, send_signal
from midflight.protocol.job import JobSpec
from midflight.run.addresses import Reach, is_local, member_address
from midflight.run.hosts import Hosts
from midflight.run.processes import (
    Child,
    FoundAgain,
    describe_end,
    start_module,
)


@dataclass(frozen=True)
class AgentPlan:
    """What all agents of a run have in common."""

    spec: JobSpec
    token_file: str
    reach: Reach
    warm: int
    verbose: bool
    own_host: str | None = None  # a name that means this machine, whoever else knows it

    def arguments(self, host: str, slots: int, join: str) -> list[str]:
        return [
            *("--join", join, "--token-file", self.token_file),
            *("--name", host, "--slots", str(slots)),
            *(("--warm", str(self.warm)) if self.warm else ()),
            *(("--warm-later",) if self.warm and self.spec.dialect.warm_later else ()),
            *("--grace", f"{self.spec.grace:g}"),
            *("--reconnect-timeout", f"{self.spec.elastic_timeout:g}"),
            *(("--verbose",) if self.verbose else ()),
        ]

    def local_arguments(self, host: str, slots: int) -> list[str]:
        address = member_address(host, self.reach.outer)
        return [*self.arguments(host, slots, self.reach.here), "--address", address]

    def foreign_command(self, host: str, slots: int) -> str:
        words = ["midflight", "agent", *self.arguments(host, slots, self.reach.there)]
        return shlex.join(words)


class Agents:
    def __init__(
        self,
        plan: AgentPlan,
        note: Callable[[dict[str, int]], None],
        job_is_over: Callable[[], Awaitable[bool]],
    ) -> None:
        """`note` writes down which agents run, host to process id, for a launcher after this."""
        self._plan = plan
        self._note = note
        self._job_is_over = job_is_over
        self._hosts: Hosts = {}  # wanted now
        self._running: dict[str, Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[str] = set()  # hosts whose agent has been given notice
        self._left: set[str] = set()  # hosts whose agent has ended as told, by somebody else
        self._announced: set[str] = set()
        self._closed = asyncio.Event()

    def adopt(self, agents: dict[str, int]) -> None:
        """Take over agents that a former launcher has started."""
        for host, pid in agents.items():
            self._running[host] = FoundAgain(pid)
            self._keep(host)

    def want(self, hosts: Hosts) -> None:
        """These are the hosts now: start and end agents accordingly."""
        self._hosts = dict(hosts)
        self._left &= hosts.keys()
        for host in self._running.keys() - hosts.keys() - self._leaving:
            self._leaving.add(host)
            send_signal(self._running[host].pid, signal.SIGTERM)
        for host in hosts:
            if host != self._plan.own_host and not is_local(host):
                self._announce(host)
            elif host not in self._tasks and host not in self._left:
                self._keep(host)

    def hold(self) -> None:
        """From now on, what ends stays ended."""
        self._closed.set()

    async def end(self, patience: float) -> None:
        """Let the agents end by themselves for a while, then kill them."""
        self.hold()
        for task in (keepers := list(self._tasks.values())):
            task.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        ends = {asyncio.create_task(child.wait()) for child in self._running.values()}
        if not ends:
            return
        _, alive = await asyncio.wait(ends, timeout=patience)
        if alive:
            for child in self._running.values():
                kill_group(child.pid)
            await asyncio.wait(alive, timeout=CHILD_KILLED)

    def _keep(self, host: str) -> None:
        task = asyncio.create_task(self._keep_going(host))
        self._tasks[host] = task
        task.add_done_callback(lambda done: self._kept(host, done))

    def _kept(self, host: str, task: "asyncio.Task[None]") -> None:
        del self._tasks[host]
        if not task.cancelled() and (error := task.exception()):
            say(f"error: the agent of {host} is no longer supervised: {error}")

    async def _keep_going(self, host: str) -> None:
        deaths = 0  # in a row
        while not self._closed.is_set() and (host in self._hosts or host in self._running):
            began = time.monotonic()
            code = await self._once(host)
            if host in self._leaving:
                self._leaving.discard(host)
                continue
            if code == 0:
                self._left.add(host)
                return
            deaths = 1 if time.monotonic() - began > CALM else deaths + 1
            if self._closed.is_set() or await self._job_is_over():
                return
            pause = restart_pause(deaths)
            say(
                f"warning: the agent of {host} {describe_end(code)}; "
                f"starting another in {pause:g} s"
            )
            await asyncio.sleep(pause)

    async def _once(self, host: str) -> int:
        if host not in self._running:
            arguments = self._plan.local_arguments(host, self._hosts[host])
            self._running[host] = await start_module("midflight.agent", arguments, quiet=True)
            self._note({name: child.pid for name, child in self._running.items()})
        code = await self._running[host].wait()
        del self._running[host]
        return code

    def _announce(self, host: str) -> None:
        if host in self._announced:
            return
        self._announced.add(host)
        if self._plan.reach.outer is None:
            say(
                f"warning: host {host} is not this machine, and cannot reach a coordinator that "
                "listens on loopback; start the run with --listen 0.0.0.0:0 to use it"
            )
            return
        command = self._plan.foreign_command(host, self._hosts[host])
        say(f"with a copy of the token file, run on {host}: {command}")
