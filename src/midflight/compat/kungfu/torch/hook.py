"""ElasticHook: for torch loops, what KungFu's hook of that name is for TensorFlow's.

    hook = ElasticHook(64, epochs=5, epoch_size=60_000, model=model, optimizer=optimizer)
    while hook.begin_step():
        ...  # forward, backward, optimizer.step()
        hook.end_step()

It counts the samples that all workers have trained, follows the cluster at the end of each step,
and carries the model and the optimizer to newcomers.
"""

from typing import Any

from midflight.compat.kungfu.peer import peer
from midflight.compat.kungfu.progress import Progress
from midflight.compat.kungfu.schedule import StepBasedSchedule, parse
from midflight.compat.kungfu.torch.ops.collective import broadcast_parameters


class ElasticHook:
    def __init__(
        self,
        local_batch_size: int,
        epochs: int,
        epoch_size: int,
        *,
        model: Any = None,
        optimizer: Any = None,
        schedule: str | StepBasedSchedule | None = None,
    ) -> None:
        """`schedule`: sizes to ask for, as in "1:100,2:100". A KungFu optimizer holds itself."""
        for name, held in (("model", model), ("hooked-optimizer", optimizer)):
            if held is not None:
                peer().hold(name, held)
        self._model = model
        plan = parse(schedule) if isinstance(schedule, str) else schedule
        self._progress = Progress(local_batch_size, epochs * epoch_size, plan)

    @property
    def trained_samples(self) -> int:
        return self._progress.trained_samples

    @property
    def step(self) -> int:
        return self._progress.step

    @property
    def exit_reason(self) -> str | None:
        return self._progress.exit_reason

    def begin_step(self) -> bool:
        """Whether there is a step to do. After a change all workers are brought to one state."""
        if self._progress.exit_reason is not None:
            return False
        if self._progress.begin() and self._model is not None:
            broadcast_parameters(self._model.state_dict())
        return True

    def end_step(self) -> bool:
        """A step is done; False: it was the last one here."""
        return self._progress.end()
