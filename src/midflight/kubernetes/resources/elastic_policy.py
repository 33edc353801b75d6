"""`elasticPolicy` of a PyTorchJob, for commands that start torchrun or another launcher.

Such a command brings a launcher for its own node and no more, so each pod runs it, as under
Kubeflow's operator, and the torchruns of all pods meet at the master. What Kubeflow's operator
tells them through `PET_*` variables is told here too; a flag of the command itself wins. A script
may hide a torchrun; then each member starts one, which is a node with one process.

All other launchers (accelerate, deepspeed, mpirun) count their nodes when they start. A job with
one of them has a fixed size, whatever its policy says (`job_spec`): each pod runs it with its rank,
the master's address and the number of nodes.
"""

from midflight.backends.words import runs_in_workers, runs_torchrun
from midflight.controller.roster import is_elastic
from midflight.controller.spec import Kind, Spec
from midflight.kubernetes import names
from midflight.kubernetes.resources import fields
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import PYTORCH_MASTER, part

BACKEND = "c10d"


def torchrun_in_every_pod(spec: Spec) -> bool:
    """Only `run_in` other than auto has the command run somewhere else."""
    elastic = spec.kind is Kind.PYTORCHJOB and is_elastic(spec)
    return elastic and runs_torchrun(spec.command, spec.run_in)


def may_hide_torchrun(spec: Spec) -> bool:
    """Members run the command, and nobody knows what that starts."""
    elastic = spec.kind is Kind.PYTORCHJOB and is_elastic(spec)
    return elastic and runs_in_workers(spec.command, spec.run_in)


def may_run_torchrun(obj: Object, spec: Spec) -> bool:
    """Whether the pods are told where torchruns meet; other launchers may be given a flag for it.

    A job of fixed size has a policy if its launcher counts its nodes.
    """
    has_policy = part(obj, "spec").value.get("elasticPolicy") is not None
    fixed = spec.kind is Kind.PYTORCHJOB and not is_elastic(spec) and has_policy
    return fixed or torchrun_in_every_pod(spec) or may_hide_torchrun(spec)


def has_member_for_each_slot(spec: Spec) -> bool:
    """Else the sizes of its world are not those that the controller counts in."""
    said = spec.nproc_per_node
    return said in ("", str(max(spec.gpus, 1))) and "nproc" not in spec.command


def chief_host(obj: Object, spec: Spec) -> str:
    """The name by which the chief is found, and its own: torchrun knows by it who is the host.

    Where there is no Master, Kubeflow's first pod is a worker.
    """
    if spec.kind is Kind.PYTORCHJOB and not part(obj, PYTORCH_MASTER).value:
        return names.first_worker_service(spec.name)
    return names.master_service(spec.name)


def rendezvous_port(obj: Object) -> int:
    policy, path = part(obj, "spec.elasticPolicy")
    return fields.whole(policy, "rdzvPort", path) or names.MASTER_PORT


def torchrun_variables(obj: Object, spec: Spec) -> dict[str, str]:
    """The same in all pods: who joins is for the rendezvous to say."""
    policy, path = part(obj, "spec.elasticPolicy")
    slots = max(spec.gpus, 1)
    nodes, processes = 1, spec.nproc_per_node or str(slots)  # of each pod, of each node
    if not torchrun_in_every_pod(spec):
        nodes, processes = slots, "1"
    host = fields.text(policy, "rdzvHost", path) or chief_host(obj, spec)
    found = {
        "PET_RDZV_BACKEND": fields.text(policy, "rdzvBackend", path) or BACKEND,
        "PET_RDZV_ENDPOINT": f"{host}:{rendezvous_port(obj)}",
        "PET_RDZV_ID": fields.text(policy, "rdzvId", path) or spec.name,
        "PET_NNODES": f"{spec.least * nodes}:{spec.most * nodes}",
        "PET_NPROC_PER_NODE": processes,
    }
    if settings := _settings(policy, path):
        found["PET_RDZV_CONF"] = settings
    if (restarts := fields.whole(policy, "maxRestarts", path)) is not None:
        found["PET_MAX_RESTARTS"] = str(restarts)
    return found


def _settings(policy: Object, path: str) -> str:
    pairs = enumerate(fields.objects(policy, "rdzvConf", path))
    return ",".join(
        "=".join(fields.text(pair, key, f"{path}.rdzvConf[{number}]") for key in ("key", "value"))
        for number, pair in pairs
    )
