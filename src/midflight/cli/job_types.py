"""Kinds of jobs by the names people give them: full, spoken and short, in any case.

Those of the original that do not exist here are known, so that filtering by one finds nothing
instead of failing, and so that `submit` can say which there are.
"""

from midflight.cli import messages
from midflight.errors import UsageError

# type: (spoken name, short name)
TYPES = {
    "tfjob": ("Tensorflow", "tf"),
    "mpijob": ("MPI", "mpi"),
    "pytorchjob": ("Pytorch", "py"),
    "horovodjob": ("Horovod", "horovod"),
    "volcanojob": ("Volcano", "volcano"),
    "etjob": ("ElasticTraining", "et"),
    "sparkjob": ("Spark", "spark"),
    "deepspeedjob": ("DeepSpeed", "dp"),
    "rayjob": ("RayJob", "rj"),
}
HERE = {"etjob": "et", "pytorchjob": "pytorch"}  # those that can be submitted, with their aliases
RESOURCES = {"etjob": "trainingjob.kai.alibabacloud.com", "pytorchjob": "pytorchjob.kubeflow.org"}
_BY_NAME = {
    name.lower(): kind for kind, names in TYPES.items() for name in (kind, *names, HERE.get(kind))
    if name
}  # fmt: skip


def canonical(text: str) -> str:
    """For `--type`; "" stays what it is."""
    found = _BY_NAME.get(text.lower(), "")
    if text and not found:
        known = ", ".join(TYPES)
        raise UsageError(
            f"unsupport job type,{messages.program()} only supports: [{known}], got {text!r}"
        )
    return found


def to_submit(text: str) -> str:
    """For `submit KIND`."""
    found = _BY_NAME.get(text.lower(), "")
    if found not in HERE:
        kinds = " and ".join(f"{kind} ({alias})" for kind, alias in HERE.items())
        raise UsageError(f"the kinds of jobs there are: {kinds}; got {text!r}")
    return found
