"""`mf.join` and the Job: what a training script holds.

Data (`feed`), gradients (`gradients`) and the optimizer's step, once per step. A step that did not
happen, because a member was lost in it, returns False and is repeated by the loop; nothing else
shows.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from midflight.errors import WorldChanged
from midflight.runtime.data.feed import Feed
from midflight.runtime.data.ledger import checksum
from midflight.runtime.data.loader import Batch, LoaderOptions, build_loader, sample_count
from midflight.runtime.data.plan import Plan
from midflight.runtime.data.sampler import ElasticBatchSampler, Issued
from midflight.runtime.gradients.ddp import LOST
from midflight.runtime.group import reduction
from midflight.runtime.group.process_group import is_communication_error
from midflight.runtime.session import Session
from midflight.runtime.state import checkpoint

LOG_SECONDS = 1.0


def join(
    *,
    backend: str | None = None,
    ddp: Mapping[str, Any] | Literal[False] | None = None,
    resume: str | os.PathLike[str] | None = None,
    deterministic: int | None = None,
    verify_every: int | None = None,
    **objects: Any,
) -> "Job":
    """Take part in the job that this process belongs to; on its own, a world of one.

    Everything that has a state (`model=`, `optimizer=`, `scheduler=`, `scaler=`, ...) is passed
    by keyword and reaches every newcomer. `backend`: gloo or nccl; by default nccl where the
    parameters are on several GPUs of this machine, else gloo. `ddp`: options for
    DistributedDataParallel; False: the script averages its gradients itself. `resume`: a
    checkpoint to begin with, if it exists. `deterministic`: into how many shards each batch is
    cut, so that the weights are the same bit for bit whatever the world does. `verify_every`: after
    so many steps the members compare their states, and one that differs raises StateError.
    """
    return Job(
        objects,
        backend=backend,
        ddp={} if ddp is None else ddp,
        resume=resume,
        deterministic=deterministic,
        verify_every=verify_every,
    )


class Job(Session):
    """This process's part in an elastic job. Use it as a context manager."""

    def __init__(self, objects: Mapping[str, Any], **options: Any) -> None:
        super().__init__(objects, **options)
        self._shards: int | None = options.get("deterministic")
        self._optimizers = [o for o in objects.values() if isinstance(o, torch.optim.Optimizer)]
        self._device = next((p.device for p in _parameters(objects) if p.is_cuda), None)
        self._scaler: Any = next((o for o in objects.values() if _is_scaler(o)), None)
        self._own = (0, 0)  # samples of this step so far, and their checksum
        self._last_completed = False
        self._checked = False  # check() has been called before
        self._counted = False  # apply() has counted the step that check() ends
        self._met = False  # the script has used a collective in this step
        self._group_given: int | None = None  # the generation whose group the script has asked for
        self._loop_epoch: int | None = None  # where a loop over epochs() is
        self._logged_at = 0.0
        self._guards = [o.register_step_pre_hook(self._refuse_step) for o in self._optimizers]

    def _close(self) -> None:
        for guard in self._guards:
            guard.remove()
        super()._close()

    # --- data -------------------------------------------------------------------------------

    def sampler(self, dataset: Any, global_batch_size: int, **plan: Any) -> ElasticBatchSampler:
        """The batch sampler for a DataLoader of one's own; iterate it with `follow`."""
        samples = sample_count(dataset)
        plan.setdefault("shards", self._shards)
        full = Plan(samples, global_batch_size, **plan)
        self._plan = full.in_common()
        return ElasticBatchSampler(full, self.schedule)

    def follow(self, loader: DataLoader[Any], sampler: ElasticBatchSampler) -> Feed:
        """Batches of a DataLoader of one's own, the right ones at each step."""
        feed = Feed(self, loader, sampler)
        feed.rehearsal = partial(self._rehearse, feed)
        self._feeds = [feed]
        return feed

    def _rehearse(self, feed: Feed) -> Iterator[Batch]:
        """A newcomer's first step, which does not count: the slow first time of everything.

        Its weights are about to be replaced, its gradients are thrown away, and no optimizer
        takes a step. Only then do the others learn that this member is ready.
        """
        if not self._awaited or self._env is None:
            return
        self._rehearsing = True
        try:
            yield feed.sample(self._env.rank, max(self._env.size, self._env.rank + 1))
        finally:
            self._rehearsing = False
            self._clear_gradients()
        self._arrive()

    def batches(
        self,
        dataset: Any,
        global_batch_size: int,
        epochs: int | None = None,
        plan: Mapping[str, Any] | None = None,
        **loader: Unpack[LoaderOptions],
    ) -> Iterator[Batch]:
        """This member's share of each step's global batch, which is the same at any size.

        `epochs`: until so many epochs are done in all; None: the rest of the present one.
        `plan`: shuffle, seed, drop_last, micro_batch_size. The rest goes to the DataLoader.
        """
        asked = epochs
        if epochs is None and self._loop_epoch is not None:
            epochs = self._loop_epoch + 1
        sampler = self.sampler(dataset, global_batch_size, epochs=epochs, **(plan or {}))
        self._plan = {**sampler.plan.in_common(), "epochs": asked}
        feed = self.follow(build_loader(dataset, sampler, **loader), sampler)
        return iter(feed)

    def epochs(self, count: int) -> Iterator[int]:
        """For a script's own epoch loop: the epochs that are left, from the present one on."""
        self._arrive()
        while self.cursor.epoch < count:
            epoch = self._loop_epoch = self.cursor.epoch
            try:
                yield epoch
            finally:
                self._loop_epoch = None
            if self.cursor.epoch == epoch:
                self.cursor = replace(self.cursor, epoch=epoch + 1, position=0)

    def begin(self, issued: Issued) -> bool:
        """The feed hands a micro batch out."""
        group = self._group
        if self._broken or (group is not None and group.is_cut):
            return False  # the step is void: nobody waits for the rest of its micro batches
        if self._membership and issued.seat.generation != self._generation:
            return False
        if issued.micro == 0:
            if not self._equality.same_plan and not self.compare_plans():
                return False
            self._own = (0, 0)
            self._met = False
            self._clear_gradients()
        self._issued = issued
        self._sync.expect(issued)
        return True

    @property
    def _generation(self) -> int:
        return self._group.generation if self._group else 0

    # --- steps ------------------------------------------------------------------------------

    def step(self, loss: Tensor) -> bool:
        """Backward, all-reduce, optimizer step. True if the step was completed.

        False: it was not the step's last micro batch, or a member was lost; then the same samples
        come again, shared out anew.
        """
        return self.backward(loss) and self.apply()

    def backward(self, loss: Tensor) -> bool:
        """The first half of `step`: True if the gradients of the whole step are there."""
        self._last_completed = False
        if self._rehearsing:
            loss.backward()
            return False
        issued = self._issued
        weight = 1.0 if issued is None else issued.weight
        weight = self._sync.scaled(weight)
        scaled = loss if weight == 1.0 else loss * weight
        if self._scaler is not None:
            scaled = self._scaler.scale(scaled)
        last = issued is None or issued.last_micro
        self.waiting = True
        try:
            if not self._broken:
                scaled.backward()
                if issued is not None:
                    self._sync.collect(issued)
                if last:
                    self._sync.finish()
                    self._keep_together()
                    reduction.wait_for_device(self._group, self._device)
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, self._group):
                raise
            self._break(error)
        finally:
            self.waiting = False
            self._sync.prescaled = False
        if self._broken:
            self._clear_gradients()
            return False
        if issued is not None:
            used, crc = self._own
            self._own = (used + len(issued.indices), checksum(issued.indices, crc))
        return last

    def _keep_together(self) -> None:
        """All members do a step, or none does. Where nothing else sees to that, they meet here."""
        own = self._met or self._group_given == self._generation
        if self._group is not None and not own and not self._sync.communicates:
            self._group.gather([self.cursor.step])

    def apply(self) -> bool:
        """The second half: the optimizer's step. True: the step is complete."""
        if self._broken:  # in a collective of the script's own, since `backward`
            self._clear_gradients()
            return False
        for optimizer in self._optimizers:
            if self._scaler is not None:
                self._scaler.step(optimizer)
            else:
                optimizer.step()
        if self._scaler is not None:
            self._scaler.update()
        self._clear_gradients()
        self._complete()
        self._counted = True
        return True

    def _refuse_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Before any step of an optimizer: it is for averaged gradients only."""
        if self._broken:
            raise WorldChanged(LOST)
        if self._checked and self._issued is None:  # a hand-written loop
            self._sync.check_averaged(
                p for group in optimizer.param_groups for p in group["params"]
            )

    def _complete(self) -> None:
        issued, self._issued = self._issued, None
        self._sync.complete()
        self.holds_state = True
        self._trained_in = self._generation
        if issued is None:
            self.cursor = replace(self.cursor, step=self.cursor.step + 1)
        else:
            self.cursor = issued.extent.after
            self._ledger.write(issued, *self._own)
        self._last_completed = True
        if self._retiring:
            for group in self._retiring:  # all others have left it, or this step had failed
                group.retire()
            self._retiring = []

    def _clear_gradients(self) -> None:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def check(self) -> bool:
        """For hand-written loops: a step boundary. True if the world is another one since.

        Everything between two calls is one step; call it once before the first.
        """
        self._arrive()
        if self._rehearsing:
            return False
        before = self._world
        hand_written = self._checked and self._issued is None and not self._counted
        if hand_written and not self._broken:
            self._complete()
        self._checked, self._counted = True, False
        self.boundary()
        self._sync.begin()
        return self._world != before

    @property
    def process_group(self) -> Any:
        """The torch process group of the present world; None in a world of one."""
        group = super().process_group
        self._group_given = self._generation
        return group

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> Tensor:
        """Sum, mean, min or max over the members, in place. Raises WorldChanged if one is lost."""
        self._arrive()
        if self._rehearsing:
            return tensor
        with self.guard():
            return reduction.all_reduce(self._group, tensor, op)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around a script's own collectives on `process_group`: WorldChanged if one is lost.

        With NCCL it ends when the device has their results.
        """
        if self._broken or self.overtaken:
            raise WorldChanged("the others go on without this: continue to the next step boundary")
        self._met = True
        self.waiting = True
        try:
            yield
            reduction.wait_for_device(self._group, self._device)
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, self._group):
                raise
            self._break(error)
            raise WorldChanged("a member was lost during a collective") from error
        finally:
            self.waiting = False

    def log(self, **values: Any) -> None:
        """One line from rank 0, at most once a second; silent for a step that did not happen."""
        now = time.monotonic()
        if self.rank != 0 or not self._last_completed or now - self._logged_at < LOG_SECONDS:
            return
        self._logged_at = now
        shown = " ".join(f"{name} {_shown(value)}" for name, value in values.items())
        print(f"step {self.cursor.step} epoch {self.cursor.epoch} size {self.size} {shown}")

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Keep a durable copy of the state; rank 0 writes it. For `join(resume=path)`."""
        if self.rank == 0:
            checkpoint.save(Path(path), self._capture())


def _parameters(objects: Mapping[str, Any]) -> Iterator[torch.nn.Parameter]:
    return (p for o in objects.values() if isinstance(o, torch.nn.Module) for p in o.parameters())


def _is_scaler(item: object) -> bool:
    return all(callable(getattr(item, name, None)) for name in ("scale", "step", "update"))


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        value = value.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
