"""The operating system below the real agents: starts, signals, looks at and reaps processes."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING
from unittest.mock import patch

from midflight.agent import loop as agent_loop
from midflight.agent import members as agent_members
from midflight.agent.link import Link
from midflight.agent.loop import Agent, Surroundings
from midflight.agent.processes import Channels, OnExit
from midflight.agent.settings import Settings
from midflight.errors import MidflightError
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import Output, StartMember
from midflight.protocol.world import World
from midflight.run import coordinator as run_coordinator
from midflight.runtime.membership import next_world
from midflight.runtime.state import agreement
from tests.simulation.coming import SimTransfer
from tests.simulation.group import SimGroup
from tests.simulation.loop import PROCESS, Process
from tests.simulation.member import SECRET, Training
from tests.simulation.plain import PlainScript

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

SILENT = logging.Logger("simulation", logging.CRITICAL + 1)
RESTART_SECONDS = 0.5
_REAP_SECONDS = 0.001


class SimProcesses:
    """In the place of `midflight.agent.processes.Processes`."""

    cluster: "Cluster"  # of the simulation that runs now
    can_adopt = False

    def __init__(self, mark: str) -> None:
        self._agent = PROCESS.get()
        self._children: dict[int, OnExit] = {}
        self._zombies: list[Process] = []

    def open(self) -> None:
        """A guard kills the children when the agent dies."""
        self._agent.on_end.append(lambda _: self._kill_all())

    def _kill_all(self) -> None:
        for pid in self._children:
            self.cluster.kill(pid)

    def spawn(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        channels: Channels,
        on_exit: OnExit,
    ) -> int:
        process = self.cluster.start_member(environment, self._agent.host)
        self._children[process.pid] = on_exit
        process.on_end.append(self._ended)
        return process.pid

    def _ended(self, process: Process) -> None:
        self._zombies.append(process)
        loop = process.loop
        loop.call_later(_REAP_SECONDS, self.reap, context=self._agent.context)

    def reap(self) -> None:
        zombies, self._zombies = self._zombies, []
        for process in zombies:
            on_exit = self._children.pop(process.pid, None)
            if on_exit is not None and process.code is not None:
                on_exit(process.code)

    async def close(self, patience: float = 2.0) -> None:
        self._kill_all()


class _Outlet:
    """Members print nothing."""

    stdout = stderr = -1
    tail = ""

    def __init__(self, order: StartMember) -> None:
        self.closed = asyncio.Event()
        self.closed.set()

    def started(self) -> None:
        """Nothing to be closed."""

    def not_started(self) -> None:
        """Nothing to be closed."""

    def member_died(self) -> None:
        """Nothing to be read."""


class Host:
    """A machine with an agent, which is started again when it dies, as the launcher does."""

    def __init__(self, cluster: "Cluster", name: str, slots: int) -> None:
        self._cluster = cluster
        self.name = name
        self.slots = slots
        self.agent: Process | None = None
        self.left = False  # for good, after a notice
        self._serving: Agent | None = None

    async def keep(self) -> None:
        cluster = self._cluster
        while not cluster.over and self.name not in cluster.network.lost:
            self.agent = Process(cluster.loop, f"agent {self.name}", self.name)
            self.agent.start(self._run)
            code = await self.agent.ended
            cluster.witness.say(f"the agent of {self.name} ends with {code}")
            if code == 0:
                return
            await asyncio.sleep(RESTART_SECONDS)

    async def _run(self) -> int:
        spec = self._cluster.spec
        settings = Settings(
            join=self._cluster.address,
            token_file="token",
            secret=SECRET,
            name=self.name,
            slots=self.slots,
            address=self.name,
            warm=0,
            grace=spec.grace,
            join_timeout=60.0,
            reconnect_timeout=spec.elastic_timeout,
            verbose=False,
            environ={},
        )
        around = Surroundings(signals=False, open_outlet=_Outlet)
        agent = self._serving = Agent(settings, SILENT, around)
        PROCESS.get().on_terminate = agent.leave
        try:
            return await agent.run()
        except MidflightError as error:
            self._cluster.witness.say(f"the agent of {self.name} gives up: {error}")
            return 1

    @property
    def is_connected(self) -> bool:
        """Whether its agent has a line to the coordinator."""
        link = getattr(self._serving, "_link", None)
        return isinstance(link, Link) and link.connected

    def print(self, member: str, line: str) -> None:
        """A member of this host does; its agent passes it on."""
        agent, serving = self.agent, self._serving
        assert agent is not None and serving is not None
        said = Output(member, "stdout", (line,), 0.0)
        agent.loop.call_soon(serving._link.say, said, context=agent.context)


def start_training(cluster: "Cluster", environment: Mapping[str, str], host: str) -> Process:
    env = WorkerEnv.from_env(environment)
    assert env is not None
    process = Process(cluster.loop, env.member, host)

    async def main() -> int:
        if cluster.habits is not None:
            return await PlainScript(environment, env, process, cluster).run()
        training = Training(env, process, cluster)
        cluster.trainings[env.member] = training
        return await training.run()

    process.start(main)
    return process


def make_group(cluster: "Cluster", world: World, name: str, backend: str) -> SimGroup:
    return SimGroup(cluster.fabric, PROCESS.get(), world, name, backend)


@contextmanager
def installed(cluster: "Cluster") -> Iterator[None]:
    """While it lasts, the modules below see the simulated clock and operating system."""
    loop = cluster.loop
    SimProcesses.cluster = cluster
    replaced: list[tuple[object, str, Callable[..., object] | type]] = [
        (agent_loop, "Processes", SimProcesses),
        (agent_loop, "_free_port", cluster.rendezvous.free_port),
        (next_world, "Group", partial(make_group, cluster)),
        (next_world, "transfer", SimTransfer),
        (agreement, "transfer", SimTransfer),
        (agent_members, "kill_group", cluster.kill),
        (agent_members, "send_signal", lambda pid, *numbers: cluster.terminate(pid)),
        (agent_members, "probe", cluster.probe),
        (run_coordinator, "say", lambda line: cluster.witness.say(line)),
    ]
    with ExitStack() as stack:
        for module, name, value in replaced:
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(patch("time.monotonic", lambda: loop.now))
        stack.enter_context(patch("time.time", lambda: loop.now + loop.wall))
        yield
