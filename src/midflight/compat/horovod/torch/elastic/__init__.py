"""`hvd.elastic`: run, TorchState, ElasticSampler."""

from collections.abc import Callable
from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.horovod.common import elastic
from midflight.compat.horovod.common.elastic import ObjectState, State
from midflight.compat.horovod.torch.elastic.sampler import ElasticSampler
from midflight.compat.horovod.torch.elastic.state import TorchState
from midflight.compat.horovod.torch.optimizer import forget_unfinished_steps


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A training function of a state, called again after each change of the world."""
    return elastic.run_fn(func, reset)


def reset(state: Any) -> None:
    elastic.reset(state)
    forget_unfinished_steps()


def __getattr__(name: str) -> Any:
    missing("horovod.torch.elastic", name)


__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
