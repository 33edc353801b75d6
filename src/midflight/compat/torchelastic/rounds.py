"""With LOGLEVEL=INFO, the rendezvous as torchelastic's users know it from its log.

A node learns its rank and the others when its first worker of a round is to start, so most lines
come then. The lines about etcd are there where the nodes meet in it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from midflight import terminal
from midflight.compat.torchelastic.rendezvous import Rendezvous
from midflight.protocol.messages import StartMember


class Rounds:
    def __init__(self, level: str, rendezvous: Rendezvous) -> None:
        self._told = level.upper() in ("INFO", "DEBUG")
        self._rendezvous = rendezvous
        self._version = 0
        self._port = ""  # which is another one for each round

    def attempt(self) -> None:
        there = self._rendezvous
        if there.backend == "etcd":
            protocol = there.config.get("protocol", "http")
            self._say([f"Etcd machines: {[f'{protocol}://{place}' for place in there.endpoints]}"])
        self._say(["Attempting to join next rendezvous"])

    def started(self, order: StartMember) -> None:
        told = order.environment
        if told.get("MASTER_PORT", "") == self._port:
            return
        self._port = told.get("MASTER_PORT", "")
        if self._version:
            self._say(["Attempting to join next rendezvous"])
        self._version += 1
        rank, nodes = int(told.get("GROUP_RANK", "0")), int(told.get("GROUP_WORLD_SIZE", "1"))
        self._say(round_lines(self._version, rank, nodes, self._rendezvous.run_id))
        if self._rendezvous.backend == "etcd":
            self._say(["Creating EtcdStore as the c10d::Store implementation"])

    def _say(self, lines: Sequence[str]) -> None:
        if self._told:
            stamp = f"INFO {datetime.now():%Y-%m-%d %H:%M:%S,%f}"[:-3]
            terminal.err([f"{stamp} {line}" for line in lines])


def round_lines(version: int, rank: int, nodes: int, run_id: str) -> list[str]:
    """What a node says from its attempt until the workers of a round start."""

    def state(status: str, participants: int, **more: Any) -> dict[str, Any]:
        known = {"status": status, "version": f"{version}"}
        return {**known, "participants": list(range(participants)), **more}

    alive = [f"/torchelastic/p2p/run_{run_id}/rdzv/v_{version}/rank_{n}" for n in range(nodes)]
    first = "Observed existing rendezvous state" if rank else "New rendezvous state created"
    return [
        f"{first}: {state('joinable', rank)}",
        f"Joined rendezvous version {version} as rank {rank}. "
        f"Full state: {state('frozen', nodes, keep_alives=[])}",
        "Waiting for remaining peers.",
        "All peers arrived. Confirming membership.",
        "Waiting for confirmations from all peers.",
        f"Rendezvous version {version} is complete. "
        f"Final state: {state('final', nodes, keep_alives=alive, num_workers_waiting=0)}",
    ]
