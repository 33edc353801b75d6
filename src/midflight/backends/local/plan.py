"""What an instance runs: its words, its environment and its folder, from the job alone.

Nothing is read or started here. The environment is laid down in this order, the later winning: the
server's, that of the shell the job was submitted from, the user's `--env`, and what Midflight says.
Of the first two, Midflight's own variables are dropped, because they belong to other processes;
secrets are dropped from all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from midflight import shims
from midflight.backends.words import in_place_of_the_shell, runs_in_workers
from midflight.controller.roster import is_elastic
from midflight.controller.spec import LOGIN, Kind, Spec
from midflight.controller.state import Cluster, Instance, Job, Node, Role
from midflight.deadlines import GRACE

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_OURS = "MIDFLIGHT_"


@dataclass(frozen=True)
class Site:
    """What a plan has to know of the machine, and of the job's place on it."""

    python: str  # absolute; it has midflight
    home: str  # MIDFLIGHT_HOME
    folder: str  # the job's
    environ: Mapping[str, str] = field(repr=False)  # the server's
    port: int = 0  # for the master of a pytorchjob of fixed size


@dataclass(frozen=True)
class Plan:
    argv: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str
    grace: float = GRACE


def render(job: Job, instance: Instance, cluster: Cluster, site: Site) -> Plan:
    """`cluster` is asked for nodes only: the instance's own, and the master's."""
    node = cluster.nodes[instance.node]
    return Plan(
        argv=_argv(job, instance, node, site),
        env=_environment(job, instance, cluster, site),
        cwd=job.spec.working_dir or f"{site.folder}/work",
    )


def slots(spec: Spec) -> int:
    """Members that fit in one worker."""
    return max(spec.gpus, 1)


# --- words --------------------------------------------------------------------------------------


def _argv(job: Job, instance: Instance, node: Node, site: Site) -> tuple[str, ...]:
    spec = job.spec
    in_shell = (spec.shell, "-c", in_place_of_the_shell(spec.command))
    if not is_elastic(spec):
        return in_shell
    if instance.role is Role.WORKER:
        return _agent(instance, node, slots(spec), site)
    if runs_in_workers(spec.command, spec.run_in):
        return (*_module(site, "midflight.run"), *_sizes(job), "--", *in_shell)
    return in_shell


def _agent(instance: Instance, node: Node, count: int, site: Site) -> tuple[str, ...]:
    return (
        *_module(site, "midflight.agent"),
        *("--run-dir", f"{site.folder}/run"),
        *("--name", instance.name, "--slots", str(count)),
        *("--address", node.address, "--grace", f"{GRACE:g}"),
    )


def _sizes(job: Job) -> tuple[str, ...]:
    spec, each = job.spec, slots(job.spec)
    now = min(max(job.wanted, spec.least), spec.most)  # not what it once began with
    return (
        *("-np", str(now * each)),
        *("--min-np", str(spec.least * each), "--max-np", str(spec.most * each)),
    )


def _module(site: Site, name: str) -> tuple[str, ...]:
    """-P: a file in the working directory must not be taken for a module of ours."""
    return (site.python, "-P", "-m", name)


# --- environment --------------------------------------------------------------------------------


def _environment(job: Job, instance: Instance, cluster: Cluster, site: Site) -> dict[str, str]:
    spec = job.spec
    inherited = {**site.environ, **spec.environment}
    base = {name: value for name, value in inherited.items() if not name.startswith(_OURS)}
    base |= spec.env
    for name in {*LOGIN, *spec.secrets}:
        base.pop(name, None)
    return {
        **base,
        **_of_kind(job, instance, cluster, site),
        **_of_devices(base, instance, cluster.nodes[instance.node]),
        **_of_midflight(job, instance, site),
        **_of_shims(base, site),
    }


def _of_midflight(job: Job, instance: Instance, site: Site) -> dict[str, str]:
    own = {
        "MIDFLIGHT_HOME": site.home,
        "MIDFLIGHT_JOB": job.spec.name,
        "MIDFLIGHT_JOB_DIR": site.folder,
        "MIDFLIGHT_INSTANCE": instance.name,
        "MIDFLIGHT_NODE": instance.node,
        "MIDFLIGHT_HOSTFILE": f"{site.folder}/edl/hostfile",
    }
    if is_elastic(job.spec) and instance.role is Role.MASTER:
        own["MIDFLIGHT_HOST"] = instance.name  # the launcher runs an agent for its own host
    return own


def _of_devices(base: Mapping[str, str], instance: Instance, node: Node) -> dict[str, str]:
    """Slots that only stand for GPUs hide nothing; real ones show what the instance was given.

    Instances that share the cores of one machine would fight for them with a thread for each.
    """
    if node.virtual or not node.gpus:
        return {"OMP_NUM_THREADS": base.get("OMP_NUM_THREADS") or "1"}
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in instance.devices)}


def _of_kind(job: Job, instance: Instance, cluster: Cluster, site: Site) -> dict[str, str]:
    if job.spec.kind is Kind.ETJOB:
        return _of_etjob(job)
    own = {"PYTHONUNBUFFERED": "1"}
    return own if is_elastic(job.spec) else own | _of_pytorchjob(job, instance, cluster, site)


def _of_etjob(job: Job) -> dict[str, str]:
    """The variables that commands of the guides compute their sizes from."""
    spec = job.spec
    own = {
        "workers": str(min(max(job.wanted, spec.least), spec.most)),
        "gpus": str(spec.gpus),
        "minWorkers": str(spec.least),
        "maxWorkers": str(spec.most),
    }
    return own | ({} if spec.gpus else {"NVIDIA_VISIBLE_DEVICES": "void"})


def _of_pytorchjob(job: Job, instance: Instance, cluster: Cluster, site: Site) -> dict[str, str]:
    spec = job.spec
    rank = 0 if instance.role is Role.MASTER else instance.index + 1
    address = "localhost" if instance.role is Role.MASTER else _master_address(job, cluster)
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(site.port),
        "WORLD_SIZE": str(spec.workers * processes_per_node(spec)),
        "RANK": str(rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(site.port),
        "PET_NODE_RANK": str(rank),
        "PET_NNODES": str(spec.workers),
        "PET_NPROC_PER_NODE": spec.nproc_per_node or "1",
    }


def processes_per_node(spec: Spec) -> int:
    """As far as it can be known here: torchrun resolves auto, cpu and gpu on the node itself."""
    if spec.nproc_per_node.isdecimal():
        return max(int(spec.nproc_per_node), 1)
    return slots(spec) if spec.nproc_per_node in ("auto", "gpu") else 1


def _master_address(job: Job, cluster: Cluster) -> str:
    masters = (i for i in job.instances.values() if i.role is Role.MASTER)
    node = cluster.nodes.get(next((m.node for m in masters), ""))
    return node.address if node is not None else "localhost"


def _of_shims(base: Mapping[str, str], site: Site) -> dict[str, str]:
    """The job's own commands first, then those under old names, then the interpreter's."""
    own = (f"{site.folder}/bin", site.python.rpartition("/")[0])
    path = ":".join((*own, base.get("PATH") or DEFAULT_PATH))
    found = {**base, "PATH": path, shims.JOB_DIR: site.folder}
    return shims.environment(found, site.python)
