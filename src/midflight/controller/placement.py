"""Which node an instance goes to, which devices it gets, and why it has to wait.

All instances of a job want the same number of devices, so taking the node with the most free ones
never wastes a place. What wants no device goes where the fewest instances are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from midflight.controller.state import Instance, Node, NodeStage, Role


@dataclass(frozen=True)
class Place:
    node: str
    devices: tuple[int, ...]


class Room:
    """What is free. It is changed by `take`; `copy` one to try something out."""

    def __init__(self, nodes: Mapping[str, Node], held: Iterable[Instance]) -> None:
        self._nodes = nodes
        self._used: dict[str, set[int]] = {name: set() for name in nodes}
        self._count = dict.fromkeys(nodes, 0)
        for instance in held:
            if instance.node in nodes:
                self.take(Place(instance.node, instance.devices))

    def copy(self) -> "Room":
        other = Room(self._nodes, ())
        other._used = {name: set(used) for name, used in self._used.items()}
        other._count = dict(self._count)
        return other

    def take(self, place: Place) -> None:
        self._used[place.node].update(place.devices)
        self._count[place.node] += 1

    def free(self, node: str) -> list[int]:
        used = self._used[node]
        return [device for device in range(self._nodes[node].gpus) if device not in used]

    def count(self, node: str) -> int:
        return self._count[node]

    # --- choosing ---------------------------------------------------------------------------

    def choose(self, instance: Instance, labels: Mapping[str, str]) -> Place | None:
        """The best place, None if there is none. Launchers take no notice of labels."""
        fitting = [
            node
            for node in self._labelled(instance, labels)
            if len(self.free(node.name)) >= instance.gpus
        ]
        if not fitting:
            return None
        spread = instance.gpus > 0 and instance.role is Role.WORKER
        best = min(
            fitting,
            key=lambda n: (-len(self.free(n.name)) if spread else 0, self._count[n.name]),
        )
        return Place(best.name, tuple(self.free(best.name)[: instance.gpus]))

    def why_not(self, instance: Instance, labels: Mapping[str, str]) -> str:
        """Why `choose` finds nothing."""
        ready = [node for node in self._nodes.values() if node.stage is NodeStage.READY]
        if not ready:
            return "no node is ready"
        labelled = self._labelled(instance, labels)
        if not labelled:
            wanted = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            return f"no node has the label{'s' if len(labels) > 1 else ''} {wanted}"
        largest = max(node.gpus for node in labelled)
        if largest < instance.gpus:
            return f"no node has {_gpus(instance.gpus)}; the largest has {largest}"
        return f"0/{len(self._nodes)} nodes have {_gpus(instance.gpus, 'free ')}"

    def _labelled(self, instance: Instance, labels: Mapping[str, str]) -> list[Node]:
        wanted = {} if instance.role is Role.LAUNCHER else labels
        return [
            node
            for node in self._nodes.values()
            if node.stage is NodeStage.READY and wanted.items() <= node.labels.items()
        ]


def _gpus(count: int, word: str = "") -> str:
    return f"{count} {word}GPU{'' if count == 1 else 's'}"
