"""What an operator gives to the pods of all jobs where their templates say nothing else."""

from typing import Any

from midflight.errors import UsageError
from midflight.kubernetes.pods import PodDefaults
from midflight.quantities import quantity


def add_placement(pod: dict[str, Any], defaults: PodDefaults) -> None:
    """Tolerations and pull secrets, beside those of the template. `pod` is a pod's spec."""
    for key, more in (
        ("tolerations", defaults.tolerations),
        ("imagePullSecrets", [{"name": name} for name in defaults.pull_secrets]),
    ):
        given = pod.get(key) or []
        if added := [dict(each) for each in more if each not in given]:
            pod[key] = [*given, *added]


def add_limits(container: dict[str, Any], defaults: PodDefaults) -> None:
    """A request that is larger than the limit would be refused: it becomes the limit."""
    if not defaults.limits:
        return
    resources = container.setdefault("resources", {})
    requests, limits = resources.get("requests") or {}, resources.setdefault("limits", {})
    for name, value in defaults.limits:
        limits.setdefault(name, _larger(value, requests.get(name, value)))


def _larger(one: str, other: Any) -> str:
    try:
        return one if quantity(one) >= quantity(str(other)) else str(other)
    except UsageError:  # it is for the API server to say what is wrong with it
        return one
