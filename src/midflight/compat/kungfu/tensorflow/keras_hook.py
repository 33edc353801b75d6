"""ElasticHook as a Keras callback: `model.fit(..., callbacks=[ElasticHook(64, 5, 60_000)])`.

After each batch the models of all workers are averaged, which for SGD is the same as averaging
gradients, and the cluster is followed. Newcomers are given the model, the optimizer's variables and
the progress. Keras is imported when the first hook is made, not before.
"""

import json
from functools import cache
from typing import Any

import torch

from midflight.compat.keras_versions import build, callback, variables_of
from midflight.compat.kungfu.peer import peer
from midflight.compat.kungfu.progress import Progress
from midflight.compat.kungfu.schedule import parse
from midflight.errors import UsageError
from midflight.runtime.group.process_group import Group
from midflight.runtime.group.reduction import all_reduce


class KerasState:
    """A Keras model and its optimizer, as one thing that is carried to newcomers."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        if not self._model.built:  # by its first batch, which nobody has seen
            return {}
        return {
            "build": json.dumps(self._model.get_build_config(), default=lambda _: None),
            "weights": list(self._model.get_weights()),
            "optimizer": [_values(variable) for variable in self._variables()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not state:
            return
        if not self._model.built:  # a newcomer has not seen a batch
            self._build(state)
        self._model.set_weights(state["weights"])
        for variable, value in zip(self._variables(), state["optimizer"], strict=True):
            variable.assign(value)

    def _build(self, state: dict[str, Any]) -> None:
        config, cause = json.loads(state["build"]), None
        try:
            if config is not None:
                self._model.build_from_config(config)
        except Exception as error:  # noqa: BLE001 - Keras raises whatever a layer raises
            cause = error
        self._model.built = True  # Keras 3 says so only of a model that was called
        made, wanted = len(self._model.get_weights()), len(state["weights"])
        if made != wanted:
            raise UsageError(
                f"Keras could not build the model of a newcomer from {state['build']}: it has "
                f"{made} weights, and those of the others have {wanted}; call the model on one "
                "batch before fit(), in all workers"
            ) from cause

    def _variables(self) -> list[Any]:
        optimizer = getattr(self._model, "optimizer", None)
        if optimizer is None:
            return []
        build(optimizer, self._model.trainable_variables)
        return variables_of(optimizer)


def weights_of(model: Any) -> list[Any]:
    """None before it is built, where Keras 2 raises an error."""
    return list(model.get_weights()) if model.built else []


def _values(variable: Any) -> Any:
    return variable.numpy() if hasattr(variable, "numpy") else variable.value


def average(model: Any) -> None:
    """Every weight becomes the mean over all workers; if a step was missed, theirs are here."""
    weights = [torch.tensor(weight) for weight in model.get_weights()]
    sums: list[torch.Tensor] = []

    def exchange(group: Group) -> None:
        sums[:] = [weight.clone() for weight in weights]
        for tensor in sums:
            if tensor.is_floating_point():
                all_reduce(group, tensor, "mean")

    if peer().step(exchange):
        model.set_weights([tensor.numpy() for tensor in sums])


@cache
def hook_class() -> Any:
    try:
        base = callback()
    except ModuleNotFoundError:
        raise UsageError(
            "the ElasticHook of kungfu.tensorflow is for Keras, which is not installed; "
            "for torch loops there is kungfu.torch.ElasticHook"
        ) from None

    class Hook(base):  # type: ignore[misc, valid-type]
        def __init__(
            self,
            local_batch_size: int,
            epochs: int,
            epoch_size: int,
            schedule: str | None = None,
        ) -> None:
            super().__init__()
            plan = parse(schedule) if schedule else None
            self.progress = Progress(local_batch_size, epochs * epoch_size, plan)

        def on_train_begin(self, logs: Any = None) -> None:
            peer().hold("keras", KerasState(self.model))
            self._begin()
            self.shared = self.model.built  # a newcomer's is by now

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._begin()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.progress.exit_reason is None:
                end_batch(self)

        def _begin(self) -> None:
            if self.progress.exit_reason is None and self.progress.begin():
                share(self.model)

    return Hook


def end_batch(hook: Any) -> None:
    """Exchange what the batch has changed, and follow the cluster."""
    if not hook.shared:  # the model was built by this batch, on all workers
        share(hook.model)
        hook.shared = True
    average(hook.model)
    if not hook.progress.end():
        hook.model.stop_training = True


def share(model: Any) -> None:
    """Every weight becomes that of rank 0."""
    from midflight.compat.kungfu.torch.ops.collective import broadcast_parameters

    weights = {str(n): torch.tensor(weight) for n, weight in enumerate(weights_of(model))}
    if weights:
        broadcast_parameters(weights)
        model.set_weights([tensor.numpy() for tensor in weights.values()])


def ElasticHook(
    local_batch_size: int, epochs: int, epoch_size: int, schedule: str | None = None
) -> Any:
    """A callback that makes `fit` elastic; `schedule` as in "1:100,2:100"."""
    return hook_class()(local_batch_size, epochs, epoch_size, schedule)
