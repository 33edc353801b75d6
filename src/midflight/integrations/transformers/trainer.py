"""Hugging Face's Trainer in an elastic job.

`Elastic` replaces the Trainer's loop over epochs and steps, because a world may change between two
steps, a step in which a member was lost is repeated, and a newcomer begins in the middle. What
happens in a step and around it is still the Trainer's: its losses, clipping, callbacks, logs,
evaluation and saving, and whatever a subclass of it overrides. The model is not wrapped, and
Accelerate believes that this process is the only one.

All members evaluate, each on its own, and go on with what rank 0 found; rank 0 alone writes.
"""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers.optimization import GreedyLR
from transformers.trainer_callback import ProgressCallback

from midflight.errors import UsageError, WorldChanged
from midflight.integrations.one_process import set_apart
from midflight.integrations.rank_zero import of_the_first
from midflight.integrations.transformers import private
from midflight.integrations.transformers.course import Course
from midflight.integrations.transformers.objections import SAMPLING, objection
from midflight.integrations.transformers.progress import Progress
from midflight.integrations.transformers.steps import (
    is_rehearsal,
    share_of,
    whole_steps,
)
from midflight.protocol.environment import WorkerEnv
from midflight.runtime.data.loader import Batch
from midflight.runtime.job import Job, join

BACKEND = set_apart(os.environ)
DDP = ("bucket_cap_mb", "find_unused_parameters", "static_graph")  # what we leave to the script

if TYPE_CHECKING:
    from transformers import Trainer as Base
else:  # the Trainer comes after it in the order of a subclass's bases
    Base = object


class Elastic(Base):
    """For a subclass of a Trainer of one's own: `class MyTrainer(Elastic, TheirTrainer)`."""

    job: Job | None = None  # during `train`
    control: Any  # a TrainerControl

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        private.check(transformers.Trainer)
        arguments = kwargs.get("args") or next(iter(args[1:2]), None)
        if arguments is not None and (reason := objection(arguments)) is not None:
            raise UsageError(f"an elastic job cannot train with these TrainingArguments: {reason}")
        self._worker = WorkerEnv.from_env(os.environ)
        self._rank = self._worker.rank if self._worker is not None else 0
        super().__init__(*args, **kwargs)
        self._progress = Progress(self)
        self._course: Course
        self._micro: Batch  # the one under way
        self._adds_up = False  # losses of micro batches are summed, not averaged
        self._has_gradients = False  # of the whole step, averaged
        self.evaluated_first = False

    # --- what is public in a Trainer ----------------------------------------------------------

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self._worker is not None and self._worker.joiner:
            resume_from_checkpoint = None  # it receives what the others have
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """On the optimizer itself, whose steps it watches, and not on Accelerate's wrapper."""
        inner = _unwrapped(optimizer if optimizer is not None else self.optimizer)
        return super().create_scheduler(num_training_steps, inner)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        metrics = super().evaluate(*args, **kwargs)
        if self.job is None or self.job.size == 1:
            return metrics
        mine = [metrics, self._progress.state_dict()]
        agreed = of_the_first(self.job, mine, self.args.device)
        if agreed is None:  # the same weights have come to the same metrics, at another speed
            self._progress.forget_speed()
            return metrics
        self._progress.load_state_dict(agreed[1])
        return agreed[0]

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        if self._rank == 0:
            super().save_model(*args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self._rank == 0:
            super()._save_checkpoint(model, trial)
        elif self.state.best_global_step == self.state.global_step:
            folder = f"checkpoint-{self.state.global_step}"
            best = os.path.join(self._get_output_dir(trial=trial), folder)
            self.state.best_model_checkpoint = best

    def is_world_process_zero(self) -> bool:
        return self._rank == 0

    def is_local_process_zero(self) -> bool:
        return self._rank == 0

    # --- the loop -----------------------------------------------------------------------------

    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: Any = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        if trial is not None:
            raise UsageError("an elastic job has no hyperparameter_search: run one job per trial")
        self.accelerator.free_memory()
        self._course = course = Course.of(self.train_dataset, args)
        lengths = self.set_initial_training_values(args, course)
        epochs, per_epoch, _, samples, _, _, max_steps = lengths
        self._init_training_state(max_steps, per_epoch, epochs, resume_from_checkpoint, None)
        model, _ = self._prepare_for_training(max_steps, course, resume_from_checkpoint)
        started = self._start_counting()
        model.zero_grad()
        if resume_from_checkpoint is not None:
            self._load_rng_state(resume_from_checkpoint)
        self.accelerator.backward = self._backward
        try:
            with self._join(model) as self.job:
                for batch in self._steps_done(model, epochs, ignore_keys_for_eval):
                    self._finish_step(model, batch, ignore_keys_for_eval, started)
                    if self.control.should_training_stop:
                        break
                self._follow_rank()
                if args.load_best_model_at_end:  # rank 0 may still be writing it
                    of_the_first(self.job, None, args.device)
                return self._finalize_training(None, samples, started)
        finally:
            self.job = None
            del self.accelerator.backward

    def _start_counting(self) -> float:
        self._initial_num_input_tokens_seen = self.state.num_input_tokens_seen
        self._initial_global_step = self._globalstep_last_logged = self.state.global_step
        self._tr_loss = torch.tensor(0.0, device=self.args.device)
        self._total_loss_scalar = 0.0
        self.current_gradient_accumulation_steps = 1  # job.backward weighs the micro batches
        return time.time()

    def _join(self, model: Any) -> Job:
        asked = vars(self.accelerator.ddp_handler)
        job = join(
            backend=BACKEND,
            ddp={name: asked[name] for name in DDP},
            model=model,
            optimizer=_unwrapped(self.optimizer),
            scheduler=self.lr_scheduler,
            trainer=self._progress,
        )
        if self.state.global_step:
            job.begin_at(*self._course.cursor(self.state.global_step))
        return job

    def _batches(self, job: Job, epochs: int) -> Iterator[Batch]:
        args, dataset, collate = self.args, self.train_dataset, self.data_collator
        if hasattr(dataset, "remove_columns"):  # of Hugging Face's datasets
            dataset = self._remove_unused_columns(dataset, description="training")
        else:
            collate = self._get_collator_with_removed_columns(collate, description="training")
        plan = {
            "micro_batch_size": self._course.micro_batch,
            "drop_last": self._course.drop_last,
            "shuffle": args.train_sampling_strategy == SAMPLING[0],
            "seed": args.seed if args.data_seed is None else args.data_seed,
        }
        return job.batches(
            dataset,
            self._course.global_batch,
            epochs,
            plan,
            collate_fn=collate,
            num_workers=args.dataloader_num_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            pin_memory=args.dataloader_pin_memory and torch.cuda.is_available(),
            multiprocessing_context=args.dataloader_multiprocessing_context,
        )

    def _steps_done(self, model: Any, epochs: int, ignored: list[str] | None) -> Iterator[Batch]:
        """The last micro batch of each step that was completed: gradients are there."""
        job, begun = self.job, False
        assert job is not None
        step_begun = epoch_begun = -1
        for step in whole_steps(self._batches(job, epochs)):
            batch = step[-1]
            if is_rehearsal(batch):
                self._micro = batch
                self.training_step(model, batch.data, None)
                continue
            self._follow_rank()
            if not begun:
                begun = True
                self._begin_training(ignored)
            if self.control.should_training_stop or self.state.global_step >= self.state.max_steps:
                return
            if batch.epoch != epoch_begun:
                epoch_begun = batch.epoch
                self._call("on_epoch_begin")
            if batch.step != step_begun:
                step_begun = batch.step
                self._call("on_step_begin")
            if self._add_gradients(job, model, step):
                yield batch
        if not begun:
            self._follow_rank()
            self._begin_training(ignored)

    def _begin_training(self, ignored: list[str] | None) -> None:
        self._call("on_train_begin")
        if self.args.eval_on_start and not self.evaluated_first:
            self._evaluate(None, ignored, skip_scheduler=True)
        self.evaluated_first = True

    # --- a step -------------------------------------------------------------------------------

    def _add_gradients(self, job: Job, model: Any, step: list[Batch]) -> bool:
        """Those of the whole step. False: a member was lost, and the same samples come again."""
        try:
            items = self._count_items(job, step)
            tokens, flos = self.state.num_input_tokens_seen, 0.0
            loss = torch.zeros((), device=self.args.device, dtype=torch.float64)
            for batch in step:
                if not job.begin(batch):
                    return False
                self._micro = batch
                own = self.training_step(model, batch.data, items).double()
                if batch.indices:
                    loss += own if self._adds_up else own * share_of(batch)
                    flos += float(self.floating_point_ops(batch.data))
                    self._track_num_input_tokens(batch.data)
            if not self._has_gradients:
                return False
            counted = self.state.num_input_tokens_seen - tokens
            self.state.num_input_tokens_seen = tokens
            sums = torch.tensor([0.0, flos, counted], device=loss.device, dtype=torch.float64)
            sums[0] = loss
            job.all_reduce(sums)
        except WorldChanged:
            return False
        self._count(*sums.tolist())
        return True

    def _count_items(self, job: Job, step: list[Batch]) -> Any:
        """The labels in the global batch, where the loss is a mean over them."""
        used = [batch.data for batch in step]
        items = self._get_num_items_in_batch(used, self.args.device)
        scaled = self.loss_is_scaled_for_ga
        if scaled is None:
            scaled = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        self._adds_up = bool(scaled) and items is not None
        if items is None:
            return None
        count = torch.as_tensor(items, device=self.args.device)
        return job.all_reduce(count if step[-1].indices else torch.zeros_like(count))

    def _backward(self, loss: torch.Tensor, **_: Any) -> None:
        """In place of Accelerate's. The gradients are those of the mean over the global batch."""
        assert self.job is not None
        if self._adds_up and self._micro.indices:
            loss = loss / share_of(self._micro)  # which job.backward multiplies it by
        self._has_gradients = self.job.backward(loss)

    def _count(self, loss: float, flos: float, tokens: float) -> None:
        """What all members agree on after a step."""
        state = self.state
        if self.args.logging_nan_inf_filter and not torch.isfinite(torch.tensor(loss)):
            loss = self._tr_loss.item() / (1 + state.global_step - self._globalstep_last_logged)
        self._tr_loss += loss
        self.current_flos += flos
        state.num_input_tokens_seen += int(tokens)

    def _finish_step(
        self, model: Any, batch: Batch, ignored: list[str] | None, started: float
    ) -> None:
        """From averaged gradients to the end of the step, as in Trainer's own loop."""
        assert self.job is not None
        norm = self._clip_grad_norm(model) if self.args.max_grad_norm > 0 else None
        norm = self._get_grad_norm(model, grad_norm=norm)
        self._call("on_pre_optimizer_step")
        if not self.job.apply():
            return
        self._call("on_optimizer_step")
        rate = self._get_learning_rate()
        if not isinstance(self.lr_scheduler, ReduceLROnPlateau | GreedyLR):
            self.lr_scheduler.step()
        self.state.global_step += 1
        self.state.epoch = self._course.epochs_after(batch)
        self._call("on_step_end")
        after = (model, None, batch.epoch, ignored, started, rate)
        self._maybe_log_save_evaluate(self._tr_loss, norm, *after)
        if self._course.ends_epoch(batch):
            self._call("on_epoch_end")
            self._maybe_log_save_evaluate(self._tr_loss, norm, *after)
        elif self.control.should_epoch_stop:
            raise UsageError("an elastic job cannot leave an epoch early: use should_training_stop")

    def _call(self, event: str) -> None:
        handler = getattr(self.callback_handler, event)
        self.control = handler(self.args, self.state, self.control)

    def _follow_rank(self) -> None:
        """Who is the first may be another one after each change of the world."""
        assert self.job is not None
        before, self._rank = self._rank, self.job.rank
        is_first = self._rank == 0
        self.state.is_world_process_zero = self.state.is_local_process_zero = is_first
        if is_first and before != 0:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, ProgressCallback):  # it has no bar yet
                    callback.on_train_begin(self.args, self.state, self.control)


class Trainer(Elastic, transformers.Trainer):
    """Hugging Face's Trainer, for a job whose members come and go."""


def _unwrapped(optimizer: Any) -> Any:
    """Without Accelerate's wrappers."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
