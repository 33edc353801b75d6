"""What Midflight's own init containers ask for.

Where a quota counts limits, Kubernetes refuses a pod with a container that has none. An init
container with the limits of the main one costs nothing: a pod counts the larger of the two. A
request that is not said is the limit, so that of the main one is repeated.
"""

from typing import Any

from midflight.errors import UsageError
from midflight.quantities import quantity

_DISK = "ephemeral-storage"
LEAST = {"cpu": "100m", "memory": "128Mi"}


def init_resources(main: dict[str, Any]) -> dict[str, dict[str, str]]:
    """`main`: the container whose limits hold here too."""
    resources = main.get("resources", {})
    given, asked = resources.get("limits", {}), resources.get("requests", {})
    limits = {name: str(given[name]) for name in (*LEAST, _DISK) if name in given}
    requests = {name: _smaller(least, limits.get(name)) for name, least in LEAST.items()}
    if _DISK in {*given, *asked}:
        requests[_DISK] = str(asked.get(_DISK, given.get(_DISK)))
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _smaller(least: str, limit: str | None) -> str:
    try:
        return least if limit is None or quantity(least) <= quantity(limit) else limit
    except UsageError:  # it is for the API server to say what is wrong with it
        return least
