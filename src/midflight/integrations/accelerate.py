"""Accelerate in an elastic job: an Accelerator for a process whose company comes and goes.

A loop keeps its `accelerator.backward`, `optimizer.step` and `scheduler.step`; its batches come
from the job that `join` returns. A step in which a member was lost did not happen, which Accelerate
has a word for: it was skipped. A prepared scheduler takes no step then, and the same samples come
again. For Accelerate itself this process is the only one.
"""

import os
from contextlib import suppress
from typing import Any

import accelerate
import torch
from accelerate.optimizer import AcceleratedOptimizer

from midflight.errors import UsageError, WorldChanged
from midflight.integrations.one_process import set_apart
from midflight.protocol.environment import WorkerEnv
from midflight.runtime.job import Job, join

BACKEND = set_apart(os.environ)
SPLIT = (
    *("deepspeed_plugin", "deepspeed_plugins", "fsdp_plugin", "megatron_lm_plugin"),
    "parallelism_config",
)


class Accelerator(accelerate.Accelerator):
    """In place of Accelerate's: `accelerator.join(model, optimizer)` after `prepare`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        split = [name for name in SPLIT if kwargs.get(name) is not None]
        if split:
            raise UsageError(
                f"{split[0]}= splits a model over fixed processes, which cannot be resized in "
                "place: keep accelerate.Accelerator; `midflight run` restarts such a script at "
                "each change of size, and it goes on from the checkpoint that it loads"
            )
        worker = WorkerEnv.from_env(os.environ)
        self._place = (worker.rank, worker.size) if worker is not None else (0, 1)
        self._job: Job | None = None
        self._has_gradients = False  # of the whole step, averaged
        super().__init__(*args, **kwargs)
        if self.scaler is not None:
            raise UsageError(
                'mixed_precision="fp16" leaves out steps, which members would have to agree on: '
                'use "bf16"'
            )
        if self.gradient_accumulation_steps != 1:
            raise UsageError(
                "gradient_accumulation_steps would make the global batch follow the members: "
                'leave it out, and give job.batches the batch and plan={"micro_batch_size": N}'
            )

    def join(self, model: Any, optimizer: Any, **options: Any) -> Job:
        """`mf.join`, for what `prepare` has returned; the options are the same."""
        options.setdefault("backend", BACKEND)
        self._job = join(model=model, optimizer=optimizer.optimizer, **options)
        return self._job

    # --- where this member stands -------------------------------------------------------------

    def _follow(self) -> None:
        if self._job is not None:
            self._place = self._job.rank, self._job.size

    @property
    def is_main_process(self) -> bool:
        return self._place[0] == 0

    @property
    def is_local_main_process(self) -> bool:
        """The same: one member prints, and not one on each machine."""
        return self._place[0] == 0

    # --- a step -------------------------------------------------------------------------------

    def prepare_optimizer(self, optimizer: Any, device_placement: bool | None = None) -> Any:
        if isinstance(optimizer, AcceleratedOptimizer):
            return super().prepare_optimizer(optimizer, device_placement)
        placed = self.device_placement if device_placement is None else device_placement
        elastic = ElasticOptimizer(optimizer, placed, self)
        if super().prepare_optimizer(elastic) is not elastic:
            raise UsageError(
                f"accelerate {accelerate.__version__} wraps an optimizer that is prepared, by "
                "_is_accelerate_prepared, once more: install accelerate==1.15.*, or a newer "
                "Midflight"
            )
        return elastic

    def backward(self, loss: Any, **_: Any) -> None:
        """Of the mean loss of a batch of `job.batches`."""
        self._has_gradients = self._joined.backward(loss)

    def complete_step(self) -> bool:
        """What `optimizer.step()` does: True if the step was completed."""
        complete = self._has_gradients and self._joined.apply()
        self._has_gradients = False
        self._follow()
        return complete

    @property
    def _joined(self) -> Job:
        if self._job is None:
            raise UsageError("call accelerator.join(model, optimizer) before the first step")
        return self._job

    # --- rank 0 alone -------------------------------------------------------------------------

    def print(self, *args: Any, **kwargs: Any) -> None:
        if self.is_main_process:
            print(*args, **kwargs)

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self.is_main_process:
            super().save(*args, **kwargs)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        if self.is_main_process:
            super().save_model(*args, **kwargs)

    def save_state(self, *args: Any, **kwargs: Any) -> Any:
        return super().save_state(*args, **kwargs) if self.is_main_process else None

    def wait_for_everyone(self) -> None:
        """If a member is lost, nobody waits: the step that comes tells."""
        if self._job is not None:
            with suppress(WorldChanged):
                self._job.all_reduce(torch.zeros(1, device=self.device))


class ElasticOptimizer(AcceleratedOptimizer):
    """Its step is the job's, which clears the gradients, too."""

    _is_accelerate_prepared = True  # so that Accelerate takes it as it is

    def __init__(self, optimizer: Any, device_placement: bool, accelerator: Accelerator) -> None:
        super().__init__(optimizer, device_placement=device_placement)
        self._accelerator = accelerator
        self._skipped = False

    def step(self, closure: Any = None) -> None:
        if closure is not None:
            raise UsageError("an elastic step has no closure: call optimizer.step() without one")
        self._skipped = not self._accelerator.complete_step()

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Nothing: between two micro batches of a step gradients add up."""

    @property
    def step_was_skipped(self) -> bool:
        """Also where the step's next micro batch is to come."""
        return self._skipped
