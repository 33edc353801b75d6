"""`--check-build`: what there is to train with.

A process of its own is asked, because the launcher never loads torch. The table has Horovod's rows;
what does not exist here (MXNet, MPI, DDL, CCL) has no cross.
"""

import json
import subprocess
import sys
from collections.abc import Mapping

from midflight.compat import horovod

_SECONDS = 120.0
_ASK = """
import importlib.util, json
found = {"tensorflow": importlib.util.find_spec("tensorflow") is not None}
try:
    import torch.distributed as dist
    found |= {"torch": True, "gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available()}
except ImportError:
    pass
print(json.dumps(found))
"""
_TABLE = {
    "Available Frameworks": {"TensorFlow": "tensorflow", "PyTorch": "torch", "MXNet": ""},
    "Available Controllers": {"MPI": "", "Gloo": "gloo"},
    "Available Tensor Operations": {
        "NCCL": "nccl", "DDL": "", "CCL": "", "MPI": "", "Gloo": "gloo",
    },
}  # fmt: skip


def table(found: Mapping[str, bool]) -> str:
    lines = [f"Horovod v{horovod.__version__}:"]
    for title, rows in _TABLE.items():
        lines += ["", f"{title}:"]
        lines += [f"    [{'X' if found.get(key) else ' '}] {name}" for name, key in rows.items()]
    return "\n".join(lines)


def ask() -> dict[str, bool]:
    """Of the interpreter that runs this; nothing if it cannot say."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=_SECONDS
        )
        return {str(key): bool(value) for key, value in json.loads(done.stdout).items()}
    except (subprocess.TimeoutExpired, ValueError):
        return {}
