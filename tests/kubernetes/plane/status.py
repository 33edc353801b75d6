"""What a node says about a pod: phase, conditions and the state of each container. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.kubernetes.plane.api import Json


@dataclass(frozen=True)
class ContainerStatus:
    name: str
    image: str
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last: Json = field(default_factory=dict)
    restarts: int = 0
    ready: bool = False
    final: bool = False  # it will not be started again

    @property
    def running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        terminated = self.state.get("terminated")
        return terminated["exitCode"] if terminated else None

    def manifest(self) -> Json:
        done = self.state.get("terminated", {}).get("containerID") or self.state.get(
            "running", {}
        ).get("containerID", "")
        state = {kind: dict(said) for kind, said in self.state.items()}
        state.get("running", {}).pop("containerID", None)
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"process://{self.image}" if done else "",
            "containerID": done,
            "state": state,
            "lastState": self.last,
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.running,
        }


@dataclass(frozen=True)
class PodStatus:
    """Everything that decides what is reported."""

    ip: str
    host_ip: str
    started: str
    inits: tuple[ContainerStatus, ...]
    containers: tuple[ContainerStatus, ...]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def phase(inits: Sequence[ContainerStatus], containers: Sequence[ContainerStatus]) -> str:
    if any(init.final and init.exit_code != 0 for init in inits):
        return "Failed"
    if containers and all(container.final for container in containers):
        return "Succeeded" if all(c.exit_code == 0 for c in containers) else "Failed"
    if any(c.running or c.restarts or c.exit_code is not None for c in containers):
        return "Running"
    return "Pending"


def report(status: PodStatus, transitions: dict[str, tuple[str, str]]) -> Json:
    """`transitions` holds, for each condition, what was last said and since when."""
    stage = phase(status.inits, status.containers)
    ready = stage == "Running" and all(c.ready for c in status.containers)
    initialized = all(init.exit_code == 0 and init.final for init in status.inits)
    said = {"Initialized": initialized, "Ready": ready, "ContainersReady": ready}
    conditions = []
    for kind, truth in said.items():
        word = "True" if truth else "False"
        if transitions.get(kind, ("", ""))[0] != word:
            transitions[kind] = (word, now())
        conditions.append(
            {
                "type": kind,
                "status": word,
                "reason": None if truth else _reason(kind, stage),
                "lastTransitionTime": transitions[kind][1],
            }
        )
    body: Json = {
        "phase": stage,
        "podIP": status.ip,
        "podIPs": [{"ip": status.ip}],
        "hostIP": status.host_ip,
        "startTime": status.started,
        "conditions": conditions,
        "containerStatuses": [c.manifest() for c in status.containers],
    }
    if status.inits:
        body["initContainerStatuses"] = [c.manifest() for c in status.inits]
    return body


def _reason(kind: str, stage: str) -> str:
    if kind == "Initialized":
        return "ContainersNotInitialized"
    return "PodCompleted" if stage == "Succeeded" else "ContainersNotReady"
