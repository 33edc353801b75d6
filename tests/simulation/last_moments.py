"""What befalls a script without Midflight when its processes have made all steps, and are ending.

By chance that seldom happens: they end within a moment, at different times.
"""

import random
from typing import TYPE_CHECKING

from tests.simulation.group import LOOK_SECONDS
from tests.simulation.sequences import happens

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.faults import Fault, Strikes

LAST_MOMENTS = ("kill_at_end", "lose_at_end")
SHARE = 0.2  # of all such seeds
COMPLETE_WITHIN = 60.0


def choose_last_moment(rng: random.Random) -> tuple[str, int] | None:
    """What happens, and to whom."""
    return (rng.choice(LAST_MOMENTS), rng.randrange(1000)) if rng.random() < SHARE else None


class LastMoments:
    def __init__(self, strikes: "Strikes", cluster: "Cluster") -> None:
        self._strikes = strikes
        self._cluster = cluster

    async def kill_at_end(self, fault: "Fault") -> None:
        """One process, shortly before the last one ends."""
        cluster = self._cluster
        if not await happens(lambda: cluster.is_complete, COMPLETE_WITHIN, LOOK_SECONDS):
            return
        most = cluster.witness.size // 2

        def are_few() -> bool:
            return sum(process.alive for process in cluster.members.values()) <= 1 + most

        await happens(are_few, COMPLETE_WITHIN, LOOK_SECONDS)
        await self._strikes.kill(self._strikes.member(fault))

    async def lose_at_end(self, fault: "Fault") -> None:
        """A host where all have ended, while others still work."""
        await happens(self._done_hosts, COMPLETE_WITHIN, LOOK_SECONDS)
        if hosts := self._done_hosts():
            self._strikes.lose(hosts[fault.victim % len(hosts)])

    def _done_hosts(self) -> list[str]:
        """As the coordinator knows."""
        shell = self._cluster.keeper.shell
        members = [] if shell is None else list(shell.state.members.values())
        busy = {member.host for member in members if not member.finished}
        return sorted({member.host for member in members} - busy) if busy else []
