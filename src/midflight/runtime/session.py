"""`mf.join` and the Job: what a training script holds.

The Job drives the pieces of this package in the training thread: at each step boundary it settles
what is due (`membership`), agrees on the state with the members of a new world (`agreement`),
feeds data (`feed`) and averages gradients (`gradients`). A step that did not happen, because a
member was lost in it, returns False and is repeated by the loop; nothing else shows.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from midflight.errors import GivenUp, WorldChanged
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import MemberFailed
from midflight.protocol.world import Member, World
from midflight.runtime import checkpoint, reduction
from midflight.runtime.agreement import NOTHING, agree
from midflight.runtime.data import Batch, LoaderOptions, build_loader, sample_count
from midflight.runtime.feed import Feed
from midflight.runtime.gradients import GradientSync
from midflight.runtime.group import Group, is_communication_error
from midflight.runtime.holdings import Holdings
from midflight.runtime.layout import Layout, Snapshot
from midflight.runtime.ledger import Ledger, checksum
from midflight.runtime.membership import Dismissed, Enter, Leave, Membership
from midflight.runtime.plan import Cursor, Plan, Seat
from midflight.runtime.sampler import ElasticBatchSampler, Issued
from midflight.runtime.schedule import Schedule
from midflight.runtime.values import Values
from midflight.store.rundir import read_token

ALONE = World(1, (Member("m0", "localhost", 0, "127.0.0.1"),))
LAYOUT_SECONDS = 600.0  # how long a preparation waits for the next step boundary
LOG_SECONDS = 1.0


def join(
    *,
    backend: str | None = None,
    ddp: Mapping[str, Any] | None = None,
    resume: str | os.PathLike[str] | None = None,
    **objects: Any,
) -> "Job":
    """Take part in the job that this process belongs to; on its own, a world of one.

    Everything that has a state (`model=`, `optimizer=`, `scheduler=`, `scaler=`, ...) is passed
    by keyword and reaches every newcomer. `backend`: gloo or nccl; by default nccl where the
    parameters are on several GPUs of this machine, else gloo. `ddp`: options for
    DistributedDataParallel. `resume`: a checkpoint to begin with, if it exists.
    """
    return Job(objects, backend=backend, ddp=ddp or {}, resume=resume)


class Job:
    """This process's part in an elastic job. Use it as a context manager."""

    def __init__(
        self,
        objects: Mapping[str, Any],
        *,
        backend: str | None,
        ddp: Mapping[str, Any],
        resume: str | os.PathLike[str] | None = None,
    ) -> None:
        plain: dict[str, Any] = {}
        self._values = Values(plain)
        self.holdings = Holdings(objects, plain)
        self._objects = dict(objects)
        self._optimizers = [o for o in objects.values() if isinstance(o, torch.optim.Optimizer)]
        self._scaler: Any = next((o for o in objects.values() if _is_scaler(o)), None)
        modules = {n: o for n, o in objects.items() if isinstance(o, nn.Module)}
        self._sync = GradientSync(modules, ddp, self._break)
        self._backend = backend or _default_backend(modules)
        self._resume = Path(resume) if resume is not None else None
        self._env = WorkerEnv.from_env(os.environ)
        self.cursor = Cursor()
        self.schedule = Schedule(Seat(0, 0, 1))
        self.holds_state = False
        self.waiting = False
        self._world = ALONE
        self._group: Group | None = None
        self._membership: Membership | None = None
        self._ledger = Ledger("", "")
        self._feeds: list[Feed] = []
        self._issued: Issued | None = None
        self._own = (0, 0)  # samples of this step so far, and their checksum
        self._broken = False
        self._retiring: list[Group] = []
        self._layout_wanted = threading.Event()
        self._layout_made = threading.Event()
        self._layout: Layout | None = None
        self._logged_at = 0.0
        self._last_completed = False

    # --- coming and going -------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._resume is not None:
            self._adopt(checkpoint.load(self._resume, self.holdings))
        if self._env is None:
            self._enter_alone()
            return self
        self._ledger = Ledger(self._env.ledger, self._env.member)
        self._membership = Membership(
            self._env, read_token(Path(self._env.token_file)), self._backend, self
        )
        self._catch_sigterm(self._membership, self._env.grace)
        self._membership.link.start()
        try:
            self._settle()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def _enter_alone(self) -> None:
        self._group = Group(self._world, "m0", self._backend)
        self._sync.attach(self._group)
        self.holds_state = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._membership is not None:
                if error is None:
                    self._finish(self._membership)
                elif isinstance(error, Exception):
                    self._report(self._membership, error)
        finally:
            self._close()

    def _finish(self, membership: Membership) -> None:
        """Training is complete here; stay until it is complete everywhere."""
        membership.finish()
        while True:
            order = membership.next_order(self.cursor.step, idle=True)
            if isinstance(order, Dismissed):
                if order.failed:
                    raise GivenUp(order.reason)
                return
            if isinstance(order, Enter):
                self._try_to_enter(order)
                membership.finish()
            elif isinstance(order, Leave):
                membership.say_settled(order.generation)

    def _report(self, membership: Membership, error: Exception) -> None:
        """The script raised: the coordinator shows it, once for all members."""
        text = "".join(traceback.format_exception(error))
        if membership.link.send(MemberFailed(text, type(error).__name__)):
            _silence(error)

    def _close(self) -> None:
        for feed in self._feeds:
            feed.close()
        self._sync.close()
        if self._membership is not None:
            self._membership.link.close()
        self._ledger.close()
        for group in (*self._retiring, self._group):
            if group is not None:
                group.close()

    def _catch_sigterm(self, membership: Membership, grace: float) -> None:
        """SIGTERM is a preemption notice: leave at a step boundary, within the notice."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        if on_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, lambda *_: membership.leave_on_notice(grace))

    # --- where the job stands ---------------------------------------------------------------

    @property
    def world(self) -> World:
        return self._world

    @property
    def rank(self) -> int:
        return self._group.rank if self._group else 0

    @property
    def size(self) -> int:
        return self._world.size

    @property
    def state(self) -> Values:
        """Plain values that every newcomer receives, by attribute or by key."""
        return self._values

    @property
    def step_number(self) -> int:
        """How many steps have been completed."""
        return self.cursor.step

    @property
    def epoch(self) -> int:
        return self.cursor.epoch

    @property
    def horizon(self) -> int:
        """The furthest step for which data has been asked for."""
        return max((feed.sampler.horizon for feed in self._feeds), default=self.cursor.step)

    @property
    def process_group(self) -> Any:
        """The torch process group of the present world; None in a world of one."""
        return self._group.pg if self._group else None

    # --- data -------------------------------------------------------------------------------

    def sampler(self, dataset: Any, global_batch_size: int, **plan: Any) -> ElasticBatchSampler:
        """The batch sampler for a DataLoader of one's own; iterate it with `follow`."""
        samples = sample_count(dataset)
        return ElasticBatchSampler(Plan(samples, global_batch_size, **plan), self.schedule)

    def follow(self, loader: DataLoader[Any], sampler: ElasticBatchSampler) -> Feed:
        """Batches of a DataLoader of one's own, the right ones at each step."""
        feed = Feed(self, loader, sampler)
        self._feeds = [feed]
        return feed

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
        sampler = self.sampler(dataset, global_batch_size, epochs=epochs, **(plan or {}))
        feed = self.follow(build_loader(dataset, sampler, **loader), sampler)
        return iter(feed)

    def epochs(self, count: int) -> Iterator[int]:
        """For a script's own epoch loop: the epochs that are left, from the present one on."""
        while self.cursor.epoch < count:
            epoch = self.cursor.epoch
            yield epoch
            if self.cursor.epoch == epoch:
                self.cursor = replace(self.cursor, epoch=epoch + 1, position=0)

    def begin(self, issued: Issued) -> bool:
        """The feed hands a micro batch out."""
        if self._broken or (self._membership and issued.seat.generation != self._generation):
            return False
        if issued.micro == 0:
            self._own = (0, 0)
            self._clear_gradients()
        self._issued = issued
        self._sync.expect(last=issued.last_micro)
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
        issued = self._issued
        weight = 1.0 if issued is None else issued.weight
        scaled = loss if weight == 1.0 else loss * weight
        if self._scaler is not None:
            scaled = self._scaler.scale(scaled)
        last = issued is None or issued.last_micro
        self.waiting = True
        try:
            if not self._broken:
                scaled.backward()
                if last:
                    self._sync.finish()
                    reduction.wait_for_device(self._group)
        except RuntimeError as error:
            if not is_communication_error(error, self._group):
                raise
            self._break(error)
        finally:
            self.waiting = False
        if self._broken:
            self._clear_gradients()
            return False
        if issued is not None:
            used, crc = self._own
            self._own = (used + len(issued.indices), checksum(issued.indices, crc))
        return last

    def apply(self) -> bool:
        """The second half: the optimizer's step. The step is complete."""
        for optimizer in self._optimizers:
            if self._scaler is not None:
                self._scaler.step(optimizer)
            else:
                optimizer.step()
        if self._scaler is not None:
            self._scaler.update()
        self._clear_gradients()
        self._complete()
        return True

    def _complete(self) -> None:
        issued, self._issued = self._issued, None
        self.holds_state = True
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

    def _break(self, error: BaseException) -> None:
        """A collective failed: this step does not happen."""
        self._broken = True
        if self._membership is not None and self._group is not None:
            self._membership.broke(self._group, self.cursor.step, str(error))

    def check(self) -> bool:
        """For hand-written loops: a step boundary. True if the world is another one since.

        Everything between two calls is one step; call it once before the first.
        """
        before = self._world
        if self._issued is None and not self._broken and self._checked:
            self._complete()
        self._checked = True
        self.boundary()
        return self._world != before

    _checked = False

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> Tensor:
        """Sum, mean, min or max over the members, in place. Raises WorldChanged if one is lost."""
        if self._broken:
            raise WorldChanged("a member was lost; go on to the next step boundary")
        self.waiting = True
        try:
            return reduction.all_reduce(self._group, tensor, op)
        except RuntimeError as error:
            if not is_communication_error(error, self._group):
                raise
            self._break(error)
            raise WorldChanged("a member was lost during all_reduce") from error
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

    # --- changes of the world ---------------------------------------------------------------

    def boundary(self) -> None:
        """Between two steps: settle what is due. Costs next to nothing when nothing is."""
        membership = self._membership
        if membership is None:
            self._broken = False
        elif (
            membership.due
            or self._broken
            or self._layout_wanted.is_set()
            or not membership.begin_step(self.cursor.step)
        ):
            self._settle()

    def _settle(self) -> None:
        membership = self._membership
        assert membership is not None
        if self._layout_wanted.is_set() and self.holds_state:
            self._make_layout()
        while (order := membership.next_order(self.cursor.step)) is not None:
            match order:
                case Enter():
                    self._try_to_enter(order)
                case Leave(generation):
                    membership.say_settled(generation)
                case Dismissed(reason, failed):
                    if failed:
                        raise GivenUp(reason)
                    raise SystemExit(0)

    def _try_to_enter(self, order: Enter) -> None:
        """Enter a world; if somebody is lost meanwhile, the next order will name another."""
        group = order.coming.group
        try:
            order.coming.wait()
            self._enter(order)
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, group):
                raise
            assert self._membership is not None
            self._membership.broke(group, self.cursor.step, str(error))

    def _enter(self, order: Enter) -> None:
        group = order.coming.group
        step = self.cursor.step if self.holds_state else NOTHING
        newcomer = not self.holds_state
        received = agree(group, self.holdings, step, order.coming.prepared, self._capture)
        if received is not None:
            self._adopt(self.holdings.restore(received, rng=newcomer and order.planned))
        seat = Seat(group.generation, group.rank, group.size)
        if not order.planned or newcomer or received is not None:
            self.schedule.replace(seat)
        old, self._group = self._group, group
        self._world = group.world
        self.holds_state = True
        self._broken = False
        self._issued = None
        self._sync.attach(group)
        if old is not None:
            self._retiring.append(old)
        assert self._membership is not None
        self._membership.entered(group)

    def _adopt(self, extra: Mapping[str, Any] | None) -> None:
        if extra is not None:
            self.cursor = Cursor(extra["step"], extra["epoch"], extra["position"])

    def _capture(self) -> Snapshot:
        cursor = self.cursor
        return self.holdings.capture(
            {"step": cursor.step, "epoch": cursor.epoch, "position": cursor.position}
        )

    def foresee(self, step: int, world: World) -> None:
        """Called by the link's thread: from that step on another seat."""
        assert self._env is not None
        seat = Seat(world.generation, world.rank(self._env.member), world.size)
        if self.holds_state:
            self.schedule.foresee(step, seat)

    def layout(self) -> Layout:
        """Called by a preparing thread: wait for the training thread to look at its state."""
        self._layout_made.clear()
        self._layout_wanted.set()
        if not self._layout_made.wait(LAYOUT_SECONDS) or self._layout is None:
            raise WorldChanged("the training thread did not come to a step boundary")
        return self._layout

    def _make_layout(self) -> None:
        self._layout_wanted.clear()
        self._layout = self._capture().layout
        self._layout_made.set()


def _is_scaler(item: object) -> bool:
    return all(callable(getattr(item, name, None)) for name in ("scale", "step", "update"))


def _default_backend(modules: Mapping[str, nn.Module]) -> str:
    on_gpu = any(p.is_cuda for m in modules.values() for p in m.parameters())
    return "nccl" if on_gpu and torch.cuda.device_count() > 1 else "gloo"


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        value = value.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _silence(error: Exception) -> None:
    """Python is not to print what the coordinator shows already."""
    usual: Callable[..., Any] = sys.excepthook

    def hook(kind: Any, value: Any, trace: Any) -> None:
        if value is not error:
            usual(kind, value, trace)

    sys.excepthook = hook
