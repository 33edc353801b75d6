"""The launcher's host: the real coordinator, kept going by the real keeper, and its clients."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from midflight.coordinator.client import CoordinatorClient
from midflight.coordinator.connections import Door
from midflight.coordinator.core import events
from midflight.coordinator.core.state import OVER, Phase, State, initial
from midflight.coordinator.exit_codes import CRASHED, REPLACED
from midflight.coordinator.main import run_until_over
from midflight.coordinator.output import Printer
from midflight.coordinator.peers import Peers
from midflight.coordinator.saved_state import Saving, state_key
from midflight.coordinator.shell import TICK, Shell, now
from midflight.errors import ConnectionLost, StoreError, Unreachable
from midflight.protocol.messages import ResizeRequested
from midflight.protocol.wire import AsyncWire, dial
from midflight.run.coordinator import CoordinatorKeeper
from midflight.rundir import RunDir
from tests.simulation.loop import Process
from tests.simulation.member import SECRET
from tests.simulation.witness import Witness

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

PORT = 7000
STOP_WITHIN = 30.0
DETECT_SECONDS = 0.05  # for the launcher to see that its child has ended


class _Printer(Printer):
    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def output(
        self, member: str, rank: int | None, stream: str, lines: Sequence[str], at: float
    ) -> None:
        self._witness.printed.update(lines)

    def ended(self, member: str, rank: int | None, code: int) -> None:
        self._witness.say(f"{member} ended with {code}")

    def traceback(self, member: str, rank: int | None, error: str) -> None:
        self._witness.say(f"{member} raised: {error}")

    def say(self, line: str, level: str = "info") -> None:
        if level != "debug":
            self._witness.say(f"coordinator: {line}")

    def close(self) -> None:
        """Nothing is open."""


class _Shell(Shell):
    """The real one, with somebody who looks on."""

    witness: Witness

    def dispatch(self, event: events.Event) -> None:
        before = self.state
        super().dispatch(event)
        if self.state is not before:
            self.witness.decided(before, self.state)


class Keeper(CoordinatorKeeper):
    """The launcher's rules about a coordinator that ends; processes are simulated."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__(RunDir(Path("run")), cluster.spec.name, "memory", "head:0")
        self._cluster = cluster
        self.process: Process | None = None
        self.shell: Shell | None = None
        self.saving: Saving | None = None

    async def _saved(self) -> State | None:
        try:
            return Saving(self._cluster.store, self._cluster.spec.name, SECRET).load(now())
        except StoreError:
            return None

    async def _once(self) -> int:
        self.process = Process(self._cluster.loop, "coordinator", "head")
        self.process.start(self._serve)
        code = await self.process.ended
        store, shell = self._cluster.store, self.shell
        if (store.away or store.full) and shell is not None and shell.state.phase in OVER:
            self._cluster.lose_end()
        await asyncio.sleep(DETECT_SECONDS)
        return code

    async def _serve(self) -> int:
        cluster = self._cluster
        await asyncio.sleep(cluster.script.startup_seconds / 4)
        saving = self.saving = Saving(cluster.store, cluster.spec.name, SECRET)
        try:
            state = saving.load(now()) or initial(cluster.spec, now())
        except StoreError:
            return CRASHED
        if state.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return 0 if state.phase is Phase.SUCCEEDED else state.exit_code or 1
        printer = _Printer(cluster.witness)
        shell = self.shell = _Shell(state, Peers(), saving, printer)
        shell.witness = cluster.witness
        door = Door(shell, SECRET, printer)
        server = await asyncio.start_server(door.serve, "head", PORT, limit=1 << 17)
        self._served = True
        try:
            return await run_until_over(shell)
        finally:
            server.close()


async def decide_beside(cluster: "Cluster") -> int:
    """A second coordinator beside a living one: it must find out, and change nothing."""
    saving = Saving(cluster.store, cluster.spec.name, SECRET)
    state, key = saving.load(now()), state_key(cluster.spec.name)
    if state is None or state.phase in OVER:
        return 0
    read = cluster.store.peek(key)
    while cluster.store.peek(key) == read:  # noqa: ASYNC110 - until the other has written
        await asyncio.sleep(TICK)
    shell = Shell(state, Peers(), saving, _Printer(cluster.witness))
    shell.dispatch(events.StopAsked(now(), "a second coordinator has its own mind", 1))
    code = await run_until_over(shell)
    if code != REPLACED:
        cluster.witness.find(f"a second coordinator decides, and ends with {code}")
    return code


async def resize(cluster: "Cluster", to: int, timeout: float) -> int:
    """`midflight resize`, as a process of its own; checks that its answer is true."""

    async def call() -> AsyncWire:
        return await dial(cluster.address, "client", "resize", SECRET)

    witness, asked_at = cluster.witness, cluster.loop.now
    cluster.asked.append(to)
    size = witness.size
    wanted = cluster.wanted
    cluster.wish()
    try:
        ended = await CoordinatorClient(call).resize(ResizeRequested(to, 0, 0, (), timeout))
    except Unreachable as error:
        witness.say(f"resize to {to}: nobody answers: {error}")
        return 1
    witness.say(f"resize to {to} is answered: {ended.ok}, {ended.detail}")
    since = {at_size for at, at_size in witness.sizes if at >= asked_at} | {size}
    by_restart = ended.detail.startswith("restarting")  # it has not heard of Midflight yet
    if ended.ok and to not in since and not by_restart:
        witness.find(f"a resize to {to} is said to be done, and the sizes were {sorted(since)}")
    if not ended.ok:
        cluster.asked.remove(to)
        cluster.wanted_still = wanted
    elif by_restart:
        await cluster.restarts.check_answer(to, asked_at)
    return 0


async def stop(cluster: "Cluster", complete: bool) -> int:
    """`midflight stop`; whoever has heard it ends the job, with the code that was asked for."""

    async def call() -> AsyncWire:
        return await dial(cluster.address, "client", "stop", SECRET)

    coordinator = cluster.keeper.process
    try:
        await CoordinatorClient(call).stop("enough", complete=complete)
    except (Unreachable, ConnectionLost) as error:
        cluster.witness.say(f"stop: nobody answers: {error}")
        return 1
    cluster.stopped = True
    await asyncio.sleep(STOP_WITHIN)
    well = coordinator is not None and coordinator.alive
    if well and not cluster.store.away and cluster.is_calm("head", "coordinator"):
        cluster.witness.find(f"the job runs on {STOP_WITHIN:g} s after it was stopped")
    return 0
