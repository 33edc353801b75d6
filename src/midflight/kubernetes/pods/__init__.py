"""The pods of a job and the dependents that must exist before them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# What pods may do, beginning with the strictest.
SECURITIES = RESTRICTED, BASELINE, AS_WRITTEN = "restricted", "baseline", "as-written"


@dataclass(frozen=True)
class PodDefaults:
    """What the operator knows of its cluster, as far as pods depend on it."""

    # It brings Midflight along, and fetches code; "": the images of jobs have what that takes.
    runtime_image: str = ""
    node_loss: int = 30  # seconds after which pods on a node that does not answer are given up
    security: str = RESTRICTED  # of jobs whose annotation does not say
    limits: tuple[tuple[str, str], ...] = ()  # of containers that have none of that name
    tolerations: tuple[Mapping[str, str | int], ...] = ()
    pull_secrets: tuple[str, ...] = ()
    min_available: int | None = None  # workers that a drain leaves, at most; None: minReplicas
    # The label of the operator's namespace: who may set it is an administrator anyway.
    operator: tuple[str, str] = ("app.kubernetes.io/name", "midflight-operator")
    # The operator's own secret, from which those of all jobs follow, and their Secrets' names.
    key: bytes = field(default=b"", repr=False)
