"""Midflight's torchrun, for the cases: the peer's own commands and script, another program."""

from bench.peers.torchrun import TorchrunFleet
from bench.processes import Run, free_port
from bench.systems import Shape


class DropInFleet(TorchrunFleet):
    module = "midflight.torchrun"

    @property
    def untouchable(self) -> frozenset[int]:
        return frozenset()  # anyone may go, the one that hosts the store as well


class DropIn:
    name = "midflight-torchrun"

    def start(self, run: Run, shape: Shape) -> DropInFleet:
        fleet = DropInFleet(run, shape, free_port())
        for _ in range(shape.workers):
            fleet.add()
        return fleet
