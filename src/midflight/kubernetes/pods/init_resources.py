"""What Midflight's own init containers ask for.

Where a quota counts limits, Kubernetes refuses a pod with a container that has none. An init
container with the limits of the main one costs nothing: a pod counts the larger of the two.
"""

from typing import Any

from midflight.errors import UsageError
from midflight.quantities import quantity

LEAST = {"cpu": "100m", "memory": "128Mi"}


def init_resources(main: dict[str, Any]) -> dict[str, dict[str, str]]:
    """`main`: the container whose limits hold here too."""
    given = main.get("resources", {}).get("limits", {})
    limits = {name: str(given[name]) for name in LEAST if name in given}
    requests = {name: _smaller(least, limits.get(name)) for name, least in LEAST.items()}
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _smaller(least: str, limit: str | None) -> str:
    try:
        return least if limit is None or quantity(least) <= quantity(limit) else limit
    except UsageError:  # it is for the API server to say what is wrong with it
        return least
