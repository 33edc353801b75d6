"""`hvd.elastic` of Keras: KerasState, run, and callbacks that keep a state up to date in `fit`.

A `fit` that was broken off goes on in the middle of its epoch: UpdateBatchStateCallback counts the
batches of the epoch that are done, and lets the next `fit` do only those that are left. Where all
of them are done, and only the epoch's end was broken off, the next `fit` begins the next epoch. The
order of the callbacks matters: those that update come first, the one that commits last.
"""

from typing import Any

from midflight.compat.aliasing import missing
from midflight.compat.horovod.tensorflow.elastic import TensorFlowKerasState, run
from midflight.compat.keras_versions import callback


class KerasState(TensorFlowKerasState):
    """`state.model`, `state.optimizer` and whatever else was passed by name."""

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer=optimizer, **kwargs)


class _EpochDone:
    """In the place of `stop_training`: true, but not for longer than this epoch."""


class UpdateBatchStateCallback(callback()):  # type: ignore[misc]
    """`state.batch`: how many batches of this epoch are done, in whatever world."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before = 0  # batches of this epoch that an earlier `fit` has done

    def on_train_begin(self, logs: Any = None) -> None:
        self._before = self.state.batch
        self.state.batches_of_an_epoch = self.params.get("steps")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = self._before + batch + 1
        steps = self.params.get("steps")
        if self._before and steps and self.state.batch >= steps and not self.model.stop_training:
            self.model.stop_training = _EpochDone()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = self._before = 0
        if isinstance(self.model.stop_training, _EpochDone):
            self.model.stop_training = False


class UpdateEpochStateCallback(callback()):  # type: ignore[misc]
    """`state.epoch`: how many epochs are done.

    Scripts begin each `fit` at epoch 0, or tell it with `initial_epoch` where to begin; both count
    the same here.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0  # before this `fit`
        self._first: int | None = None  # what this `fit` calls its first epoch

    def on_train_begin(self, logs: Any = None) -> None:
        self._done, self._first = self.state.epoch, None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self._done + epoch - (self._first or 0) + 1


class CommitStateCallback(callback()):  # type: ignore[misc]
    """Commit every so many batches, and at the end of every epoch.

    After the last batch of an epoch there is no commit of its own: the one at the epoch's end
    follows, when the other callbacks have counted the epoch.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        self.batches_remaining = self.batches_per_commit  # the same on all ranks after a change

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            if batch + 1 != self.params.get("steps") and not self.model.stop_training:
                self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.commit()


def __getattr__(name: str) -> Any:
    missing("horovod.keras.elastic", name)


__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
