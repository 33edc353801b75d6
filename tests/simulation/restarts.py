"""What must be true of a job whose script never calls Midflight.

All are restarted only if one of them has died or cannot be heard, or another size is wanted. An
answer says how many are started. A process that the coordinator has given up does not stay beside
those that it has started in its place. The job ends with 0 if, and only if, all of its last
processes did.
"""

import asyncio
from typing import TYPE_CHECKING

from midflight.coordinator.core.state import OVER, Mode, Phase, State
from midflight.protocol.world import World
from tests.simulation.loop import Process
from tests.simulation.sequences import happens

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

LOOK = 0.5
RESTART_WITHIN = 30.0
QUICK_FAILURES = 3  # in a row: then the job may fail by Midflight's own rules
FELLING = ("kill_member", "kill_at_callback", "notice_member", "kill_at_end")
SHAKEN = (  # whoever suffers one of these may be taken for dead, or is
    "stop_agent",
    "kill_agent",
    "lose_host",
    "cut_from_head",
    "cut_head",
    "slow_host",
    "half_open",
    "notice_host",
    "drop_frame",
    "flip_bit",
)


class Restarts:
    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._last: World | None = None  # the processes that were started last

    def decided(self, before: State, after: State) -> None:
        if after.mode is not Mode.RESTART:
            return
        if after.phase not in OVER:
            self._last = after.world
        begun = before.mode is Mode.RESTART and before.phase is not Phase.RESTARTING
        again = after.phase is Phase.RESTARTING or _generation(after) > _generation(before)
        if begun and again and not self._has_cause(before, after):
            self._cluster.witness.find(
                "all are restarted, and none of them has died, and no other size is wanted"
            )

    def _has_cause(self, before: State, after: State) -> bool:
        if before.queue or after.wanted != before.size or before.size != before.wanted:
            return True
        busy = [member for member in before.members.values() if not member.finished]
        if any(after.hosts[member.host].leaving for member in busy):
            return True
        names = () if before.world is None else before.world.names
        known = before.members.keys() - {member.name for member in busy}
        return any(self._is_missed(name) for name in names if name not in known)

    def _is_missed(self, name: str) -> bool:
        """It may have ended with 0, but nobody has heard of that."""
        process = self._cluster.processes.get(name)
        if process is None or process.code not in (None, 0) or not process.parent.alive:
            return True
        return self._cluster.was_silent(process.host, f"agent {process.host}")

    async def watch(self) -> None:
        """Nobody whom the coordinator has given up trains on where it can be reached."""
        cluster = self._cluster
        while True:
            await asyncio.sleep(LOOK)
            shell = cluster.keeper.shell
            if shell is None or shell.state.phase in OVER or shell.retired:
                continue
            for process in cluster.processes.values():
                if process.alive and process.name not in shell.state.members:
                    self._check_end(process)

    def _check_end(self, process: Process) -> None:
        host = process.host
        if self._cluster.is_calm(process.name, host, f"agent {host}", "head", "coordinator"):
            self._cluster.witness.find(f"{process.name} runs on, and was given up")

    async def check_answer(self, to: int, asked_at: float) -> None:
        """Somebody was told that the job restarts with so many: soon it has as many."""
        cluster = self._cluster
        if await happens(lambda: cluster.witness.size == to, RESTART_WITHIN, LOOK):
            return
        shell, places = cluster.keeper.shell, [host.name for host in cluster.hosts]
        over = shell is None or shell.retired or shell.state.phase in OVER
        calm = cluster.is_calm("head", "coordinator", *places, *(f"agent {h}" for h in places))
        if calm and not over and not cluster.over and cluster.wished_at <= asked_at:
            cluster.witness.find(
                f"a restart with {to} was promised, and there are {cluster.witness.size}"
            )

    def check_count(self) -> None:
        """Under torchrun's rules only what failed by itself is a failure."""
        shell, cluster = self._cluster.keeper.shell, self._cluster
        if shell is None or cluster.spec.dialect.max_restarts is None:
            return
        counted, killed = shell.state.resets, len(cluster.felled)
        if counted > killed + self._hardly_known():
            cluster.witness.find(f"{counted} failures are counted, and {killed} were killed")

    def _hardly_known(self) -> int:
        """Failures that a silent host explains, which only a coordinator knew that died as well."""
        faults = [fault.kind for fault in self._cluster.faults]
        silent = sum(kind in SHAKEN for kind in faults)
        return min(self._cluster.deaths.count("coordinator"), silent)

    def may_fail(self) -> bool:
        """Whether the faults are a reason for the job to fail."""
        cluster, dialect = self._cluster, self._cluster.spec.dialect
        shaken = [fault for fault in cluster.faults if fault.kind in (*SHAKEN, *FELLING)]
        if dialect.fixed_size:
            return bool(shaken)
        if dialect.max_restarts is not None:
            return len(cluster.felled) + self._hardly_known() > dialect.max_restarts
        return len(shaken) >= QUICK_FAILURES or (cluster.is_complete and bool(shaken))

    def check_success(self) -> None:
        names = () if self._last is None else self._last.names
        ends = {name: self._cluster.processes[name].code for name in names}
        badly = [f"{name} ended with {code}" for name, code in ends.items() if code != 0]
        if badly:
            self._cluster.witness.find(f"the job succeeds, and {', '.join(badly)}")


def _generation(state: State) -> int:
    return state.world.generation if state.world is not None else 0
