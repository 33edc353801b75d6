"""`mf.join` and the Job: what a training script holds.

A Job has a session, and gives the script its verbs: batches, the two halves of a step, collectives.
A step that did not happen, because a member was lost in it, returns False and is repeated by the
loop; nothing else shows.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from midflight.errors import UsageError, WorldChanged
from midflight.protocol.messages import MemberLogged
from midflight.protocol.world import World
from midflight.runtime.data.feed import Feed
from midflight.runtime.data.loader import Batch, LoaderOptions, build_loader, sample_count
from midflight.runtime.data.plan import Cursor, Plan
from midflight.runtime.data.sampler import ElasticBatchSampler
from midflight.runtime.gradients.ddp import LOST
from midflight.runtime.group import reduction
from midflight.runtime.group.public_group import check_waits
from midflight.runtime.options import Options
from midflight.runtime.session import Session
from midflight.runtime.shadow.eligibility import (
    Joining,
    check_joining,
    is_scaler,
    may_be_wanted,
)
from midflight.runtime.state import checkpoint
from midflight.runtime.state.checkpoints import Checkpoints, Interval
from midflight.runtime.state.values import Values

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

LOG_SECONDS = 1.0


def join(
    *,
    backend: str | None = None,
    ddp: Mapping[str, Any] | Literal[False] | None = None,
    resume: str | os.PathLike[str] | None = None,
    deterministic: int | None = None,
    verify_every: int | None = None,
    joining: Joining = "auto",
    **objects: Any,
) -> "Job":
    """Take part in the job that this process belongs to; on its own, a world of one.

    Everything that has a state (`model=`, `optimizer=`, `scheduler=`, `scaler=`, ...) is passed
    by keyword and reaches every newcomer. `backend`: gloo or nccl; by default nccl where the
    parameters are on several GPUs of this machine, else gloo. `ddp`: options for
    DistributedDataParallel; False: the script averages its gradients itself. `resume`: a
    checkpoint to begin with, or a folder of them, if there is one. `deterministic`: into how many
    shards each batch is cut, so that the weights are the same bit for bit whatever the world does.
    `verify_every`: after so many steps the members compare their states, and one that differs
    raises StateError. `joining`: whether newcomers receive the state while all train (shadow),
    while the others wait (blocking), or in the way that fits its size (auto).
    """
    check_joining(joining)
    averaging = {} if ddp is None else ddp
    options = Options(backend, averaging, resume, deterministic, verify_every, joining)
    return Job(objects, options)


class Job:
    """This process's part in an elastic job. Use it as a context manager."""

    def __init__(self, objects: Mapping[str, Any], options: Options) -> None:
        self._session = Session(objects, options)
        self._shards = options.deterministic
        self._may_shadow = may_be_wanted(options.joining, objects)
        self._device = next((p.device for p in _parameters(objects) if p.is_cuda), None)
        self._scaler: Any = next((o for o in objects.values() if is_scaler(o)), None)
        self._last_completed = False
        self._checked = False  # check() has been called before
        self._applying = False  # apply() steps the optimizers
        self._counted = False  # apply() has counted the step that check() ends
        self._looked = False  # what this step's own collectives brought was found whole
        self._group_given: int | None = None  # the generation whose group the script has asked for
        self._loop_epoch: int | None = None  # where a loop over epochs() is
        self._logged_at = 0.0
        self._guards = [
            optimizer.register_step_pre_hook(self._refuse_step)
            for optimizer in self._session.optimizers
        ]

    def __enter__(self) -> "Self":
        try:
            self._session.start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Left without an error, or by `sys.exit(0)`: training is complete here."""
        try:
            self._session.end(error)
        finally:
            for guard in self._guards:
                guard.remove()

    # --- where the job stands ---------------------------------------------------------------

    @property
    def _settled(self) -> Session:
        """The session, once this member has its place in the world."""
        self._session.arrive()
        return self._session

    @property
    def world(self) -> World:
        return self._settled.group.world

    @property
    def rank(self) -> int:
        return self._settled.rank

    @property
    def size(self) -> int:
        return self._settled.size

    @property
    def state(self) -> Values:
        """Plain values that every newcomer receives, by attribute or by key."""
        return self._settled.values

    @property
    def step_number(self) -> int:
        """How many steps have been completed."""
        return self._settled.cursor.step

    @property
    def epoch(self) -> int:
        return self._settled.cursor.epoch

    @property
    def overtaken(self) -> bool:
        """Whether the others are past the epoch that the script is at the end of."""
        return self._session.overtaken

    # --- data -------------------------------------------------------------------------------

    def sampler(self, dataset: Any, global_batch_size: int, **plan: Any) -> ElasticBatchSampler:
        """The batch sampler for a DataLoader of one's own; iterate it with `follow`."""
        samples = sample_count(dataset)
        plan.setdefault("shards", self._shards)
        full = Plan(samples, global_batch_size, **plan)
        self._session.plan = full.in_common()
        return ElasticBatchSampler(full, self._session.schedule)

    def follow(self, loader: DataLoader[Any], sampler: ElasticBatchSampler) -> Feed:
        """Batches of a DataLoader of one's own, the right ones at each step."""
        feed = Feed(self._session, loader, sampler)
        feed.rehearsal = partial(self._rehearse, feed)
        feed.ended = self._session.catch_up
        self._session.feed = feed
        return feed

    def _rehearse(self, feed: Feed) -> Iterator[Batch]:
        """A newcomer's first step, which does not count: the slow first time of everything.

        Its weights are about to be replaced, its gradients are thrown away, and no optimizer
        takes a step. Only then do the others learn that this member is ready.
        """
        session = self._session
        if not session.awaited or session.env is None:
            return
        session.rehearsing = True
        try:
            session.sync.rehearse(session.backends[0])
            rank, size = session.env.rank, max(session.env.size, session.env.rank + 1)
            yield feed.sample(rank, size)
            if self._may_shadow:
                yield feed.sample(rank, size, sharers=rank)  # of another shape, for other kernels
        finally:
            session.sync.end_rehearsal()
            session.rehearsing = False
            session.clear_gradients()
        session.arrive()

    def batches(
        self,
        dataset: Any,
        global_batch_size: int,
        epochs: int | None = None,
        plan: Mapping[str, Any] | None = None,
        **loader: "Unpack[LoaderOptions]",
    ) -> Iterator[Batch]:
        """This member's share of each step's global batch, which is the same at any size.

        `epochs`: until so many epochs are done in all; None: the rest of the present one.
        `plan`: shuffle, seed, drop_last, micro_batch_size. The rest goes to the DataLoader.
        """
        asked = epochs
        if epochs is None and self._loop_epoch is not None:
            epochs = self._loop_epoch + 1
        sampler = self.sampler(dataset, global_batch_size, epochs=epochs, **(plan or {}))
        self._session.plan = {**sampler.plan.in_common(), "epochs": asked}
        feed = self.follow(build_loader(dataset, sampler, **loader), sampler)
        return iter(feed)

    def epochs(self, count: int) -> Iterator[int]:
        """For a script's own epoch loop: the epochs that are left, from the present one on."""
        session = self._settled
        while session.cursor.epoch < count:
            epoch = self._loop_epoch = session.cursor.epoch
            try:
                yield epoch
            finally:
                self._loop_epoch = None
            if session.cursor.epoch == epoch:
                session.cursor = replace(session.cursor, epoch=epoch + 1, position=0)

    def begin(self, batch: Batch) -> bool:
        """For a loop that has looked at all micro batches of a step: this one is next.

        False: a member was lost, and the same samples come again.
        """
        return self._session.rehearsing or self._session.begin(batch.issued)

    def begin_at(self, step: int, epoch: int, samples: int) -> None:
        """Before it is entered: training begins here, from a checkpoint that is not Midflight's.

        `samples`: how many of that epoch are used. A newcomer is where the others are.
        """
        env = self._session.env
        if env is None or not env.joiner:
            self._session.cursor = Cursor(step, epoch, samples)

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
        session = self._session
        if session.rehearsing:
            loss.backward()
            return False
        issued, sync = session.issued, session.sync
        weight = sync.scaled(1.0 if issued is None else issued.weight)
        scaled = loss if weight == 1.0 else loss * weight
        if self._scaler is not None:
            scaled = self._scaler.scale(scaled)
        last = issued is None or issued.last_micro
        try:
            with suppress(WorldChanged), session.collective():
                if not session.driver.broken:
                    scaled.backward()
                    if issued is not None:
                        sync.collect(issued)
                    if last:
                        sync.finish()
                        self._keep_together()
                        reduction.wait_for_device(session.group, self._device)
        finally:
            sync.prescaled = False
        if session.driver.broken:
            session.clear_gradients()
            return False
        if issued is not None:
            session.used(issued)
        return last

    def _keep_together(self) -> None:
        """All members do a step, or none does. Where nothing else sees to that, they meet here."""
        group = self._session.group
        unseen = group.public is group.pg  # then a script that has asked for it is trusted
        if group.waits.met or (unseen and self._group_given == group.generation):
            return
        group.gather([self._session.cursor.step])

    def apply(self) -> bool:
        """The second half: the optimizer's step. True: the step is complete."""
        session = self._session
        if session.driver.broken or self._is_torn():  # in the script's own, since `backward`
            session.clear_gradients()
            return False
        if session.shadow is not None and session.shadow.is_newcomer:
            session.shadow.queue()
        else:
            self._step_optimizers()
        session.clear_gradients()
        session.complete()
        self._last_completed = self._counted = True
        return True

    def _step_optimizers(self) -> None:
        self._applying = True
        try:
            for optimizer in self._session.optimizers:
                if isinstance(optimizer, torch.optim.LBFGS):
                    raise UsageError(
                        "LBFGS moves the weights several times in a step, and such a step could "
                        "not be repeated when a member is lost: use an optimizer that needs no "
                        "closure"
                    )
                if self._scaler is not None:
                    self._scaler.step(optimizer)
                else:
                    optimizer.step()
        finally:
            self._applying = False
        if self._scaler is not None:
            self._scaler.update()

    def _refuse_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Before any step of an optimizer: it is for averaged gradients only."""
        session = self._session
        if session.driver.broken or (not self._applying and self._is_torn()):
            raise WorldChanged(LOST)
        session.own_steps = session.own_steps or not self._applying
        if self._checked and session.issued is None:  # a hand-written loop
            session.sync.check_averaged(
                p for group in optimizer.param_groups for p in group["params"]
            )

    def check(self) -> bool:
        """For hand-written loops: a step boundary. True if the world is another one since.

        Everything between two calls is one step; call it once before the first.
        """
        session = self._settled
        if session.rehearsing:
            return False
        before = session.group.world
        hand_written = self._checked and session.issued is None and not self._counted
        if hand_written and not session.driver.broken and (self._looked or not self._is_torn()):
            with suppress(WorldChanged), session.collective():
                self._keep_together()  # if somebody is lost only here, the step has happened
            session.complete()
            self._last_completed = True
        self._checked, self._counted, self._looked = True, False, False
        session.boundary()
        session.group.waits.met = False
        session.sync.begin()
        return session.group.world != before

    # --- collectives ------------------------------------------------------------------------

    @property
    def process_group(self) -> Any:
        """The torch process group of the present world; None in a world of one."""
        group = self._settled.group
        self._session.own_collectives = True
        self._session.end_shadow()
        if self._session.env is not None:
            check_waits("job.process_group", group.backend)
        self._group_given = group.generation
        return group.public

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> Tensor:
        """Sum, mean, min or max over the members, in place. Raises WorldChanged if one is lost."""
        session = self._settled
        if session.rehearsing:
            return tensor
        with self.guard():
            return reduction.all_reduce(session.group, tensor, op)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around a script's own collectives on `process_group`: WorldChanged if one is lost.

        With NCCL it ends when the device has their results.
        """
        session = self._session
        session.own_collectives = True
        gone_on = session.driver.broken or session.overtaken or not session.end_shadow()
        if gone_on:
            raise WorldChanged("the others continue without it: continue to the next step boundary")
        with session.collective():
            yield
            reduction.wait_for_device(session.group, self._device)
        self._looked = True

    def _is_torn(self) -> bool:
        """Whether a collective of the script's own, outside a guard, has come to nothing.

        With NCCL it ends like a whole one. Costs nothing where there are none, or with gloo.
        """
        session = self._session
        if not session.own_collectives:
            return False
        with suppress(WorldChanged), session.collective():
            if session.group.waits.raised:  # and the script has gone on
                raise WorldChanged("a collective of the script's own has failed")
            reduction.wait_for_device(session.group, self._device)
            self._looked = True
        return session.driver.broken

    # --- records ----------------------------------------------------------------------------

    def log(self, **values: Any) -> None:
        """One line from rank 0, at most once a second; silent for a step that did not happen.

        The values are those of rank 0. Numbers go into the record of the run, too.
        """
        now = time.monotonic()
        if self.rank != 0 or not self._last_completed or now - self._logged_at < LOG_SECONDS:
            return
        self._logged_at = now
        plain = {n: v.item() if isinstance(v, Tensor) else v for n, v in values.items()}
        shown = " ".join(f"{name} {_shown(value)}" for name, value in plain.items())
        print(f"step {self.step_number} epoch {self.epoch} size {self.size} {shown}")
        if (membership := self._session.driver.membership) is not None:
            said = MemberLogged(self.step_number, self.epoch, _numbers(plain))
            membership.link.send(said)

    def checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Keep a durable copy of the state; rank 0 writes it. For `join(resume=path)`."""
        if self.rank == 0:
            checkpoint.save(Path(path), self._session.capture())

    def checkpoints(
        self, folder: str | os.PathLike[str], every: int | str = "10m", keep: int = 3
    ) -> None:
        """From now on keep the last states in a folder, while training goes on.

        `every`: so many steps, or a time such as 10m. Rank 0 writes. For `join(resume=folder)`.
        """
        if self._session.checkpoints is not None:
            raise UsageError("job.checkpoints() was called before: call it once, before the loop")
        self._session.checkpoints = Checkpoints(Path(folder).absolute(), Interval.of(every), keep)


def _parameters(objects: Mapping[str, Any]) -> Iterator[torch.nn.Parameter]:
    return (p for o in objects.values() if isinstance(o, torch.nn.Module) for p in o.parameters())


def _numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Those that are numbers; None: not a finite one."""
    return {
        name: float(value) if math.isfinite(value) else None
        for name, value in values.items()
        if isinstance(value, Real)
    }


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
