"""Elastic PyTorch training: the names a training script needs.

`import midflight as mf` stays light. What needs torch is loaded when its name is first used, so
that the command line, the agent and the coordinator never pay for it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from midflight import leaving as _leaving  # noqa: F401 - early, so that it comes last at the end
from midflight.errors import MidflightError, WorldChanged

if TYPE_CHECKING:
    from midflight.api.client import Client
    from midflight.notebook import launch
    from midflight.runtime.data.sampler import ElasticBatchSampler
    from midflight.runtime.job import Job, join
    from midflight.runtime.state.checkpoint import load

__version__ = "0.1.0"
__all__ = [
    "Client",
    "ElasticBatchSampler",
    "Job",
    "MidflightError",
    "WorldChanged",
    "__version__",
    "join",
    "launch",
    "load",
]

_LOADED_WHEN_USED = {
    "Client": "midflight.api.client",
    "ElasticBatchSampler": "midflight.runtime.data.sampler",
    "Job": "midflight.runtime.job",
    "join": "midflight.runtime.job",
    "launch": "midflight.notebook",
    "load": "midflight.runtime.state.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_USED:
        raise AttributeError(f"module 'midflight' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LOADED_WHEN_USED[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
