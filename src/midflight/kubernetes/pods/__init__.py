"""The pods of a job and the dependents that must exist before them. Pure."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PodDefaults:
    """What the operator knows of its cluster, as far as pods depend on it."""

    # It brings Midflight along, and fetches code; "": the images of jobs have what that takes.
    runtime_image: str = ""
    node_loss: int = 30  # seconds after which pods on a node that does not answer are given up
    # The label of the operator's namespace: who may set it is an administrator anyway.
    operator: tuple[str, str] = ("app.kubernetes.io/name", "midflight-operator")
    # The operator's own secret, from which those of all jobs follow, and their Secrets' names.
    key: bytes = field(default=b"", repr=False)
