"""Spec: what was submitted, as one frozen value that never changes afterwards.

The command line, a YAML file and the HTTP API all end here; `spec_check.py` says what is wrong with
one. What only containers have a use for is kept in `container`, so that the same spec can go to a
cluster. `secrets` is never shown: use `shown` for whatever a person may see.
"""

import enum
import re
from dataclasses import dataclass, field, replace

DEFAULT_NAMESPACE = "default"
ANY_NUMBER = 1000  # workers; what --max-workers is where nothing was said
HIDDEN = "******"
LOGIN = ("GIT_SYNC_USERNAME", "GIT_SYNC_PASSWORD")  # names in `secrets`, as Arena has them
_LOGIN = re.compile(r"^(https?://)[^/@\s]+@")  # before the host of an address


class Kind(enum.Enum):
    ETJOB = "etjob"  # a launcher that runs the command, and workers that come and go
    PYTORCHJOB = "pytorchjob"  # a master and workers that each run the command


@dataclass(frozen=True)
class Container:
    """What has a meaning only where instances are containers."""

    image: str = ""
    image_pull_policy: str = "Always"
    image_pull_secrets: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # NAME=QUANTITY, beside --gpus
    data: tuple[str, ...] = ()  # CLAIM:PATH
    data_dirs: tuple[str, ...] = ()  # HOST[:CONTAINER]
    config_files: tuple[str, ...] = ()  # HOST[:CONTAINER]
    annotations: tuple[str, ...] = ()
    launcher_annotations: tuple[str, ...] = ()
    worker_annotations: tuple[str, ...] = ()
    launcher_selectors: tuple[str, ...] = ()
    scheduler: str = ""
    priority: str = ""
    gang: bool = False
    queue: bool = False
    rdma: bool = False
    host_network: bool = False
    host_ipc: bool = False
    host_pid: bool = False
    share_memory: str = ""
    sync_image: str = ""
    ssh_secret: str = ""
    tensorboard: bool = False
    tensorboard_image: str = ""
    tensorboard_node_port: bool = False
    logdir: str = ""
    model_name: str = ""
    model_source: str = ""


@dataclass(frozen=True)
class Sync:
    """Code that is fetched before anything starts. User and password are in `Spec.secrets`."""

    mode: str  # git | rsync
    source: str
    branch: str = ""
    revision: str = ""


@dataclass(frozen=True)
class Spec:
    kind: Kind
    name: str
    command: str  # for a shell; line breaks are folded already
    namespace: str = DEFAULT_NAMESPACE
    workers: int = 1  # a pytorchjob's master is one of them
    min_workers: int | None = None  # None: of fixed size (pytorchjob only)
    max_workers: int | None = None
    gpus: int = 0  # per worker
    cpu: str = ""  # per worker; a quantity, "" for no limit
    memory: str = ""
    working_dir: str = ""  # absolute; "" for the job's own folder
    env: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)  # of the submitting shell: PATH, ...
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    labels: dict[str, str] = field(default_factory=dict)
    selectors: dict[str, str] = field(default_factory=dict)  # labels that a node must have
    sync: Sync | None = None
    shell: str = "sh"
    run_in: str = "auto"  # launcher | workers | auto: by the words of the command (etjob)
    nproc_per_node: str = ""  # auto | cpu | gpu | a number (pytorchjob)
    retry: int = 0  # restarts after a failure (pytorchjob)
    restart_policy: str = "Never"  # of the whole job after a failure: Never | OnFailure (etjob)
    backoff_limit: int = 6  # restarts of the whole job (etjob)
    worker_restart_policy: str = "Always"  # Never | OnFailure | Always | ExitCode (etjob)
    clean_policy: str = "Running"  # at the end, which instances go: None | Running | All
    running_timeout: float | None = None  # seconds a job may run
    ttl_after_finished: float | None = None  # seconds after its end at which a job is deleted
    max_wait_time: float | None = None  # seconds a job may wait before it runs
    spot: bool = False
    container: Container = Container()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def elastic(self) -> bool:
        return self.min_workers is not None

    @property
    def least(self) -> int:
        """Workers without which it does not run."""
        return self.workers if self.min_workers is None else self.min_workers

    @property
    def most(self) -> int:
        if self.min_workers is None:
            return self.workers
        return ANY_NUMBER if self.max_workers is None else self.max_workers


def shown(spec: Spec) -> Spec:
    """The spec as people may see it; a password may stand in the source's address as well."""
    sync = spec.sync
    if sync is not None:
        sync = replace(sync, source=_LOGIN.sub(rf"\1{HIDDEN}@", sync.source))
    return replace(spec, secrets=dict.fromkeys(spec.secrets, HIDDEN), sync=sync)
