"""Callbacks for `model.fit`: equal beginnings, averaged metrics, learning rates that follow a plan.

All ranks have to use the same ones in the same order: they call collectives. Momentum correction is
not done: with Keras 3 the momentum is a constant of the compiled step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from midflight.compat.aliasing import missing
from midflight.compat.horovod.common.basics import rank, size
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.tensorflow.functions import broadcast_variables
from midflight.compat.horovod.tensorflow.mpi_ops import allreduce
from midflight.compat.keras_versions import callback, variables_of


class BroadcastGlobalVariablesCallback(callback()):  # type: ignore[misc]
    """After the first batch of each `fit`, every rank goes on with the root's variables.

    After the first batch, for only then all of them exist; in each `fit`, for ranks that have come
    since the last one have to take part.
    """

    def __init__(
        self,
        root_rank: int,
        device: str = "",
        local_variables: Any = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.process_set = process_set
        self.broadcast_done = False
        self._local = {id(variable) for variable in local_variables or ()}

    def register_local_var(self, variable: Any) -> None:
        self._local.add(id(variable))

    def on_train_begin(self, logs: Any = None) -> None:
        self.broadcast_done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.broadcast_done:
            return
        self.broadcast_done = True
        every = [*self.model.weights, *variables_of(self.model.optimizer)]
        shared = [variable for variable in every if id(variable) not in self._local]
        broadcast_variables(shared, self.root_rank, self.process_set)


class MetricAverageCallback(callback()):  # type: ignore[misc]
    """At the end of an epoch the metrics are averaged over all ranks.

    Callbacks that come after this one see the averages.
    """

    def __init__(self, device: str = "", process_set: ProcessSet = global_process_set) -> None:
        super().__init__()
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        names = sorted(name for name, value in (logs or {}).items() if np.ndim(value) == 0)
        if names:
            values = np.array([float(logs[name]) for name in names])
            means = allreduce(values, name="metrics", process_set=self.process_set).numpy()
            logs.update(zip(names, means.tolist(), strict=True))


class LearningRateScheduleCallback(callback()):  # type: ignore[misc]
    """The learning rate is `initial_lr * multiplier(epoch)` from `start_epoch` to `end_epoch`."""

    def __init__(  # noqa: PLR0913
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.multiplier = multiplier if callable(multiplier) else _powers(multiplier)

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    "Could not autodetect the number of steps per epoch. Please specify the "
                    f"steps_per_epoch parameter to the {type(self).__name__}()."
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        early = self.current_epoch < self.start_epoch
        if early or (self.end_epoch is not None and self.current_epoch >= self.end_epoch):
            return
        if not self.staircase:
            assert self.steps_per_epoch is not None
            self._set(self.current_epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set(self.current_epoch)

    def _set(self, epoch: float) -> None:
        self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)


def _powers(base: float) -> Callable[[float], float]:
    """A number is an exponential decay."""
    return lambda epoch: float(base**epoch)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """From the rate of one rank to `initial_lr`, the rate of all, over the first epochs."""

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr,
            self._share,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def _share(self, epoch: float) -> float:
        """Of the full rate; it is reached with the last batch."""
        assert self.steps_per_epoch is not None
        progress = (epoch + 1.0 / self.steps_per_epoch) / self.warmup_epochs
        return (progress * (size() - 1) + 1) / size()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.warmup_epochs - 1 and self.verbose > 0 and rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


def __getattr__(name: str) -> Any:
    missing("horovod.keras.callbacks", name)
