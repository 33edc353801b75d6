"""Simulated nodes: several on one machine, each with an address of its own in 127.0.0.0/8."""

from collections.abc import Mapping

from midflight.controller.state import Node
from midflight.errors import UsageError

MOST = 250
_ADDRESS = "127.0.1."
_HOSTNAME = "kubernetes.io/hostname"  # the label that selects one node, here as elsewhere


def simulated(count: int, gpus: int) -> tuple[Node, ...]:
    if not 1 <= count <= MOST:
        raise UsageError(f"wanted 1 to {MOST} simulated nodes, or 0 for this machine, got {count}")
    if not 0 <= gpus <= MOST:
        raise UsageError(f"wanted 0 to {MOST} GPUs on each node, got {gpus}")
    return tuple(_node(number, gpus) for number in range(1, count + 1))


def _node(number: int, gpus: int) -> Node:
    name = f"node-{number}"
    return Node(name, f"{_ADDRESS}{number}", gpus, {_HOSTNAME: name}, virtual=True)


def are_simulated(nodes: Mapping[str, Node]) -> bool:
    return any(node.virtual and node.address.startswith(_ADDRESS) for node in nodes.values())
