"""The environment of a pod's container, as a list for its template.

The user's own variables come first and keep their values; what Midflight says comes last and wins.
A password for fetching code is taken out: it belongs to the container that fetches.
"""

from collections.abc import Mapping
from typing import Any

from midflight.backends.local.plan import processes_per_node
from midflight.controller.roster import is_elastic
from midflight.controller.spec import LOGIN, Kind
from midflight.controller.state import Instance, Job, Role
from midflight.kubernetes import names
from midflight.kubernetes.resources.elastic_policy import torchrun_in_every_pod
from midflight.protocol.tunnel import TLS

Variable = dict[str, Any]
POD_IP = "POD_IP"


def environment(
    own: list[Variable],
    job: Job,
    instance: Instance,
    port: int = names.MASTER_PORT,
    torchrun: Mapping[str, str] | None = None,  # what it is told, where it may be run
) -> list[Variable]:
    """`own` is the user's list, `port` where the master of a job of fixed size listens."""
    kept = [variable for variable in own if variable["name"] not in LOGIN]
    offered = _sizes(job) if job.spec.kind is Kind.ETJOB else [plain("PYTHONUNBUFFERED", "1")]
    if _may_listen(job, instance):
        offered.append(plain(TLS, "1"))
    if torchrun_in_every_pod(job.spec):
        ours = _of_torchrun(job, instance)
    elif is_elastic(job.spec):
        ours = _of_midflight(job, instance)
    else:
        ours = [*_identity(job, instance), *_of_pytorch(job, instance, port)]
    sure = {variable["name"] for variable in ours}
    ours += [plain(*pair) for pair in (torchrun or {}).items() if pair[0] not in sure]
    first = [_field(POD_IP, "status.podIP")] if is_elastic(job.spec) else []
    taken = {variable["name"] for variable in [*first, *ours]}
    said = {variable["name"] for variable in kept}
    return [
        *first,  # others refer to it, the user's may do so as well
        *(variable for variable in kept if variable["name"] not in taken),
        *(variable for variable in offered if variable["name"] not in said),
        *ours,
    ]


def _may_listen(job: Job, instance: Instance) -> bool:
    """Whether the job's coordinator may be in this pod."""
    if torchrun_in_every_pod(job.spec):
        return True
    return is_elastic(job.spec) and instance.role is not Role.WORKER


def plain(name: str, value: str) -> Variable:
    return {"name": name, "value": value}


def _field(name: str, path: str) -> Variable:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _sizes(job: Job) -> list[Variable]:
    """What commands of the guides compute their sizes from."""
    spec = job.spec
    return [
        plain("workers", str(min(max(job.wanted, spec.least), spec.most))),
        plain("gpus", str(spec.gpus)),
        plain("minWorkers", str(spec.least)),
        plain("maxWorkers", str(spec.most)),
    ]


def _identity(job: Job, instance: Instance) -> list[Variable]:
    return [
        plain("MIDFLIGHT_JOB", job.spec.name),
        plain("MIDFLIGHT_INSTANCE", instance.name),
        _field("MIDFLIGHT_NODE", "spec.nodeName"),
    ]


def _of_torchrun(job: Job, instance: Instance) -> list[Variable]:
    """Midflight's own torchrun proves itself with the job's token."""
    return [
        *_identity(job, instance),
        plain("MIDFLIGHT_JOB_DIR", names.JOB_DIR),
        plain("MIDFLIGHT_TOKEN_FILE", names.TOKEN_FILE),
    ]


def _of_midflight(job: Job, instance: Instance) -> list[Variable]:
    spec = job.spec
    found = [
        *_identity(job, instance),
        plain("MIDFLIGHT_JOB_DIR", names.JOB_DIR),
    ]
    if instance.role is Role.WORKER:
        return found
    found += [
        plain("MIDFLIGHT_HOSTFILE", f"{names.EDL}/hostfile"),
        plain("MIDFLIGHT_LISTEN", f"$({POD_IP}):{names.PORT}"),
        plain("MIDFLIGHT_TOKEN_FILE", names.TOKEN_FILE),
        plain("MIDFLIGHT_STORE", f"kubernetes://{spec.namespace}/{names.state_map(spec.name)}"),
    ]
    if instance.role is Role.MASTER:
        found.append(plain("MIDFLIGHT_HOST", instance.name))  # a worker as well, with an agent
    return found


def _of_pytorch(job: Job, instance: Instance, port: int) -> list[Variable]:
    spec = job.spec
    rank = str(0 if instance.role is Role.MASTER else instance.index + 1)
    master = names.master_service(spec.name)
    found = {
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(spec.workers * processes_per_node(spec)),
        "RANK": rank,
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": str(port),
        "PET_NODE_RANK": rank,
        "PET_NNODES": str(spec.workers),
        "PET_NPROC_PER_NODE": spec.nproc_per_node or "1",
    }
    return [plain(name, value) for name, value in found.items()]
