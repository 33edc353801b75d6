"""What `get` says of a pod: one word, as kubectl has it, why it is so, and when it began and ended.

The word is the most telling of what phase, containers and init containers say: Running, Init:0/1,
ErrImagePull, OOMKilled, Terminating. Pure; what the operator keeps of a pod is in
`resources/pod.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from midflight.errors import UsageError
from midflight.kubernetes.resources import devices
from midflight.kubernetes.resources.pod import read_pod, sidecars, waiting

Object = Mapping[str, Any]
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
OVER = ("Succeeded", "Failed")
_SIGNALS = 128


def status(pod: Object) -> str:
    found = pod.get("status") or {}
    word = str(found.get("reason") or found.get("phase") or "Pending")
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "Unknown" if word == "NodeLost" else "Terminating"
    return _initializing(pod) or _of_containers(found, word)


def reason(pod: Object) -> str:
    """Why it waits, or how it ended; "" where there is nothing to add."""
    found = pod.get("status") or {}
    phase = found.get("phase") or "Pending"
    if phase == "Pending":
        return waiting(found)
    if phase == "Failed":
        said, code = read_pod(pod), exit_code(pod)
        if said.end or code is None:
            return said.end
        why = f": {said.last_line}" if said.last_line else ""
        return f"its program ended with code {code}{why}"
    return ""


def is_initializing(pod: Object) -> bool:
    return _initializing(pod) != ""


def container(pod: Object) -> str:
    """Whose log and shell are meant where nothing is said; at first, the one that prepares."""
    if is_initializing(pod):
        return str(_first_unfinished(pod).get("name") or "")
    spec, meta = pod["spec"], pod["metadata"]
    named = (meta.get("annotations") or {}).get(DEFAULT_CONTAINER)
    return str(named or spec["containers"][0]["name"])


def containers(pod: Object) -> list[str]:
    spec = pod["spec"]
    return [each["name"] for each in (*(spec.get("initContainers") or ()), *spec["containers"])]


def begun(pod: Object, wanted: str = "") -> str | None:
    """The container that is meant, once it has begun; there is no log of it before."""
    there = containers(pod)
    if wanted and wanted not in there:
        raise UsageError(
            f"{pod['metadata']['name']} has no container {wanted!r}; there are {', '.join(there)}"
        )
    name = wanted or container(pod)
    found = pod.get("status") or {}
    states = (
        *(found.get("initContainerStatuses") or ()),
        *(found.get("containerStatuses") or ()),
    )
    state = next((each.get("state") or {} for each in states if each["name"] == name), {})
    return name if "running" in state or "terminated" in state else None


def has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in OVER


def exit_code(pod: Object) -> int | None:
    """Of its own program, once that has ended; negative: the number of a signal."""
    raw = _main_state(pod).get("terminated", {}).get("exitCode")
    if raw is None:
        return None
    return _SIGNALS - raw if _SIGNALS < raw < _SIGNALS + 65 else int(raw)


def started_at(pod: Object) -> str | None:
    state = _main_state(pod)
    for word in ("running", "terminated"):
        if at := state.get(word, {}).get("startedAt"):
            return str(at)
    return None


def ended_at(pod: Object) -> str | None:
    at = _main_state(pod).get("terminated", {}).get("finishedAt")
    return str(at) if at else None


def gpus(pod: Object) -> int:
    """Devices that it holds of its node, or asks for."""
    limits = [(each.get("resources") or {}).get("limits") for each in pod["spec"]["containers"]]
    return sum(devices.slots(each or {}, "limits") for each in limits)


def has_place(pod: Object) -> bool:
    """It is on a node, and what it holds there is taken."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["spec"].get("nodeName")) and phase not in OVER


def _initializing(pod: Object) -> str:
    """Init:1/2, or what keeps it there; "" if it is prepared, or needs no preparation."""
    found, beside = pod.get("status") or {}, sidecars(pod)
    states = found.get("initContainerStatuses") or ()
    for number, each in enumerate(states):
        state = each.get("state") or {}
        ended = state.get("terminated")
        if _is_done(each, beside):
            continue
        if ended:
            return f"Init:{_end(ended)}"
        waits = (state.get("waiting") or {}).get("reason")
        if waits and waits != "PodInitializing":
            return f"Init:{waits}"
        return f"Init:{number}/{len(pod['spec'].get('initContainers') or states)}"
    return ""


def _first_unfinished(pod: Object) -> Object:
    states: Sequence[Object] = pod["status"]["initContainerStatuses"]
    beside = sidecars(pod)
    return next((each for each in states if not _is_done(each, beside)), states[-1])


def _is_done(state: Object, beside: frozenset[str]) -> bool:
    """Whether this container does not keep the others from beginning; a sidecar has begun."""
    ended = (state.get("state") or {}).get("terminated")
    if state.get("name") in beside:
        return bool(ended or state.get("started"))
    return bool(ended and not ended.get("exitCode"))


def _of_containers(found: Object, word: str) -> str:
    running = False
    for each in reversed(found.get("containerStatuses") or ()):
        state = each.get("state") or {}
        if waits := (state.get("waiting") or {}).get("reason"):
            word = waits
        elif ended := state.get("terminated"):
            word = _end(ended)
        elif state.get("running") and each.get("ready"):
            running = True
    word = {"Succeeded": "Completed", "Failed": "Error"}.get(word, word)
    return "Running" if word == "Completed" and running else word


def _end(ended: Object) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _main_state(pod: Object) -> Mapping[str, Mapping[str, Any]]:
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    meta = pod.get("metadata") or {}
    wanted = (meta.get("annotations") or {}).get(DEFAULT_CONTAINER) or (
        pod["spec"]["containers"][0]["name"]
    )
    for each in states:
        if each.get("name") == wanted:
            state: Mapping[str, Mapping[str, Any]] = each.get("state") or {}
            return state
    return {}
