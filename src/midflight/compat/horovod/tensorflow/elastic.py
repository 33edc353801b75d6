"""`hvd.elastic` of TensorFlow: run, TensorFlowKerasState, TensorFlowState.

A state's version is its optimizer's count of steps, so that after a failure the survivors keep the
newest state there is. Variables are exchanged if some rank lacks the newest, and after every
failure: the replicas are equal then whatever a step that broke has left behind. A collective that
fails in a graph comes out of it as an error of TensorFlow's; `run` takes the failure out of it. No
other error is touched.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from midflight.compat.aliasing import missing
from midflight.compat.horovod.common import elastic
from midflight.compat.horovod.common.basics import rank
from midflight.compat.horovod.common.elastic import ObjectState, State
from midflight.compat.horovod.common.exceptions import HorovodInternalError, InvalidRequest
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.tensorflow.bridge import to_numpy, to_torch
from midflight.compat.horovod.tensorflow.functions import broadcast_flat, broadcast_object
from midflight.compat.horovod.tensorflow.optimizer import careful, innermost
from midflight.compat.keras_versions import build, variables_of
from midflight.runtime.membership.standing import Change
from midflight.runtime.state.claims import NOTHING

_COUNTERS = ("iteration", "iterations")  # what Keras calls an optimizer's count of steps
_RAISED = re.compile(r"(?:^|\s)(HorovodInternalError|InvalidRequest): (.*)", re.MULTILINE)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A training function of a state: called again, with what the state holds, after a change."""

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except tf.errors.OpError as error:
            found = failure(error)
            if found is None:
                raise
            raise found from error

    return elastic.run_fn(wrapper, elastic.reset)


def failure(error: Any) -> HorovodInternalError | None:
    """What a collective in a graph has raised; None: this error is about something else."""
    found = _RAISED.search(str(error.message))
    if found is None:
        return None
    kind = InvalidRequest if found[1] == InvalidRequest.__name__ else HorovodInternalError
    return kind(found[2])


class _VariablesState(ObjectState):
    """Variables, whichever a subclass has, and plain values."""

    def __init__(self, **kwargs: Any) -> None:
        self._values: list[Any] = []
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)
        self._save_variables()

    def _kept(self) -> Sequence[Any]:
        raise NotImplementedError

    def save(self) -> None:
        self._save_variables()
        super().save()

    def _save_variables(self) -> None:
        self._values = [variable.numpy().copy() for variable in self._kept()]

    def restore(self) -> None:
        for variable, value in zip(self._kept(), self._values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        change = elastic.take_change()
        root = change.root if change is not None else 0
        self._saved_state = broadcast_object(self._live(), root)
        self._set_attrs()
        if change is None or not change.planned or _somebody_lacks(change):
            self._exchange(root, take=change is None or _takes(change))
        self.save()

    def _exchange(self, root: int, *, take: bool) -> None:
        """Everybody takes part, as in every broadcast; who has the newest state keeps its own."""
        if PROCESS.standing.group.size == 1:
            return
        kept = self._kept()
        given = [to_torch(variable.numpy()) for variable in kept]
        received = broadcast_flat(given, root, "state.variables")
        if take and rank() != root:
            for variable, value in zip(kept, received, strict=True):
                variable.assign(to_numpy(value))


def _somebody_lacks(change: Change) -> bool:
    return bool(change.behind) or max(change.versions) == NOTHING


def _takes(change: Change) -> bool:
    own = change.versions[PROCESS.standing.rank]
    return not change.planned or own < max(change.versions) or own == NOTHING


class TensorFlowKerasState(_VariablesState):
    """`state.model`, `state.optimizer` and whatever else was passed by name."""

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        if not getattr(model, "built", True):
            raise ValueError("Model must be built first. Run `model.build(input_shape)`.")
        self.model = model
        self.optimizer = optimizer or getattr(model, "optimizer", None)
        self.backend = backend
        self.batches_of_an_epoch: int | None = None  # if they are counted, in `batch`
        careful(self.optimizer)
        super().__init__(**kwargs)

    def version(self) -> int | None:
        if self.optimizer is None:
            return None
        optimizer = innermost(self.optimizer)
        return int(getattr(optimizer, "_iterations", optimizer.iterations).numpy())

    def reset(self) -> None:
        """A change may come between the last batch of an epoch and the end of the epoch."""
        steps = self.batches_of_an_epoch
        if steps and getattr(self, "batch", 0) >= steps and hasattr(self, "epoch"):
            self.batch = 0
            self.epoch += 1

    def _kept(self) -> Sequence[Any]:
        if self.optimizer is None:
            return list(self.model.weights)
        build(self.optimizer, self.model.trainable_variables)
        return [*self.model.weights, *variables_of(self.optimizer)]


class TensorFlowState(_VariablesState):
    """`state.variables`, and whatever else was passed by name."""

    def __init__(self, variables: Any = None, session: Any = None, **kwargs: Any) -> None:
        given = variables if variables is not None else tf.compat.v1.global_variables()
        self.variables = list(given)
        self.session = session
        super().__init__(**kwargs)

    def version(self) -> int | None:
        counters = [
            int(variable.numpy())
            for variable in self.variables
            if variable.name.split("/")[-1].split(":")[0] in _COUNTERS and not variable.shape
        ]
        return sum(counters) if counters else None

    def _kept(self) -> Sequence[Any]:
        return self.variables


def __getattr__(name: str) -> Any:
    missing("horovod.tensorflow.elastic", name)


__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]
