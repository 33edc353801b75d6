"""Gradients averaged over the world, at the speed of DistributedDataParallel.

The user's module is not wrapped: DDP objects are built around it, one per world, and driven from
forward hooks on the module itself. They are cheap to build, so each new world gets new ones. What
DDP would do in the user's forward call and might fail there (buffers, bucket order) is done or
caught here, so that a lost member shows up in `job.step`, or, in a hand-written loop, as
WorldChanged out of `loss.backward()`, and nowhere else. No gradients are left behind then: those
that lie there are not averaged.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from midflight.errors import UsageError, WorldChanged
from midflight.protocol.world import ALONE
from midflight.runtime import torch_private
from midflight.runtime.data.sampler import Issued
from midflight.runtime.gradients.buffers import Buffers, by_kind
from midflight.runtime.group import reduction
from midflight.runtime.group.process_group import Group, is_communication_error

LOST = (
    "a member was lost in this step, which did not happen: catch midflight.WorldChanged around "
    "the step, call job.check(), and repeat the step"
)
_SUM = dist.AllreduceOptions()


class GradientSync:
    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        options: Mapping[str, Any] | Literal[False],
        on_break: Callable[[BaseException], None],
    ) -> None:
        """`options`: of DDP; False: the script averages by itself, and only buffers are undone."""
        averaged = modules if options is not False else {}
        self._names = {id(m): name for name, m in modules.items()}
        self._modules = list(averaged.values())
        self._parameters = {id(m): list(m.parameters()) for m in self._modules}
        self._trained: dict[int, list[bool]] = {}  # which of them their DDP object knows of
        self._buffers = Buffers(modules)
        self._options = {**torch_private.QUIET_DDP, **(options or {})}
        self._on_break = on_break
        self._group: Group | None = None
        self._wrapped: dict[int, DistributedDataParallel] = {}
        self._armed: set[int] = set()  # modules whose forward was seen in this step
        self._ordered: set[int] = set()  # DDP objects that have settled their buckets
        # `job.step` does this backward pass: its loss is divided by the size of the world already
        self.prescaled = False
        self.before_evaluation: Callable[[], None] | None = None  # a forward without gradients
        self._sync = True
        self._empty = False  # this member has no share of the step
        self._lost = False  # this world broke in a forward pass
        self._rehearsal: Group | None = None
        self._rehearsed: list[Any] = []  # its works, which have memory
        self._hooks = [
            hook
            for module in self._modules
            for hook in (
                module.register_forward_pre_hook(self._before, with_kwargs=True),
                module.register_forward_hook(self._after),
            )
        ]

    def attach(self, group: Group) -> None:
        """From now on gradients are averaged over this group; WorldChanged if it is cut here."""
        self.detach()
        self._group = group
        if group.size == 1:
            return
        for module in self._modules:
            self._wrap_anew(module, group)

    def rehearse(self, backend: str) -> None:
        """A newcomer's first pass averages with nobody, until `end_rehearsal`.

        What takes long for the first time is then over before others wait for it: DDP's buckets
        are allocated, and over gloo the pinned host memory that those of a GPU pass through; NCCL
        is loaded. With 1.3 GB of gradients on a GPU this was more than a second.
        """
        self.detach()
        group = Group(ALONE, ALONE.members[0].name, backend)
        self._group = self._rehearsal = group
        try:
            group.connect_alone()
            for module in self._modules:
                self._wrap_anew(module, group)
        except RuntimeError:  # it will be slow, or say in the world what is wrong
            self.detach()

    def end_rehearsal(self) -> None:
        """With the buckets of a second pass, which DDP cuts otherwise."""
        if self._rehearsal is None:
            return
        with suppress(RuntimeError):  # of memory there may be too little for that
            for wrapped in self._wrapped.values():
                if torch_private.rebuild_buckets(wrapped):
                    for bucket in torch_private.empty_buckets(wrapped):
                        self._rehearse(self._rehearsal, bucket).wait()
        self.detach()

    def _wrap_anew(self, module: nn.Module, group: Group) -> None:
        """A DDP object for those of its parameters that are trained now, if any."""
        former = self._wrapped.pop(id(module), None)
        self._ordered.discard(id(former))
        trained = [p.requires_grad for p in self._parameters[id(module)]]
        self._trained[id(module)] = trained
        if not any(trained):
            return
        wrap = partial(self._wrap, module, group)
        wrapped = wrap() if torch_private.DDP_IS_QUIET else group.waits.call(wrap)
        wrapped.require_backward_grad_sync = self._sync
        self._wrapped[id(module)] = wrapped

    def _find(self, module: nn.Module) -> DistributedDataParallel | None:
        """Its DDP object: another one where the script has frozen or thawed parameters since."""
        group = self._group
        if group is not None and group.size > 1 and not self._lost and torch.is_grad_enabled():
            trained = [p.requires_grad for p in self._parameters[id(module)]]
            if trained != self._trained.get(id(module)):
                self._wrap_anew(module, group)
        return self._wrapped.get(id(module))

    def _wrap(self, module: nn.Module, group: Group) -> DistributedDataParallel:
        # With find_unused_parameters or static_graph DDP waits for an all-reduce of its own.
        wrapped = DistributedDataParallel(module, process_group=group.quiet, **self._options)
        wrapped.register_comm_hook(group, self._reduce if group.size > 1 else self._rehearse)
        return wrapped

    def _rehearse(
        self, group: Group, bucket: torch_private.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """All works of a pass are kept: where others take part they are under way together."""
        buffer = bucket.buffer()
        work = group.all_reduce(buffer, _SUM)
        self._rehearsed.append(work)
        return group.waits.future(work, buffer)

    def _reduce(
        self, group: Group, bucket: torch_private.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        """DDP hands a bucket of gradients over; it waits for a future that a cut can end.

        The future has no error even then: DDP is to come to the end of this backward pass, and
        `_conclude` raises there.
        """
        buffer = bucket.buffer()
        if self._empty:
            buffer.zero_()  # whatever the placeholder's loss was: 0 times NaN is NaN
        elif not self.prescaled:
            buffer.div_(group.size)
        if bucket.is_last() and not self.prescaled:
            torch_private.after_backward(partial(self._conclude, group, buffer.device))
        try:
            work = group.all_reduce(buffer, _SUM)
        except RuntimeError as error:
            return group.waits.failed(error, buffer)
        return group.waits.future(work, buffer)

    def _conclude(self, group: Group, device: torch.device) -> None:
        """The end of a script's own `loss.backward()`: the gradients are averaged, or it raises."""
        try:
            group.waits.check()
            self._buffers.share(group)
            reduction.wait_for_device(group, device)
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, group):
                raise
            self._on_break(error)
            self._refuse(error)

    def _refuse(self, error: BaseException | None = None) -> NoReturn:
        """Let nobody take the gradients for averaged ones."""
        for module in self._modules:
            for parameter in module.parameters():
                parameter.grad = None
        raise WorldChanged(LOST) from error

    def detach(self) -> None:
        """Drop the DDP objects; their hooks on the parameters go with them."""
        self._wrapped = {}
        self._rehearsed = []
        if self._rehearsal is not None:
            self._rehearsal.retire()
            self._rehearsal = None
        self._armed.clear()
        self._ordered.clear()
        self._buffers.forget()
        self._lost = False
        self._group = None

    def close(self) -> None:
        self.detach()
        for hook in self._hooks:
            hook.remove()

    def begin(self) -> None:
        """A step of a hand-written loop begins, perhaps the same one again."""
        self._armed.clear()
        self._keep_buffers(may_end_halfway=False)

    def _keep_buffers(self, *, may_end_halfway: bool) -> None:
        """For the case that the step is repeated; alone, one of a single part never is."""
        if may_end_halfway or (self._group is not None and self._group.size > 1):
            self._buffers.begin()

    def complete(self) -> None:
        """It happened."""
        self._buffers.complete()

    def rewind(self) -> None:
        """The step under way did not happen: nor did what its forward passes did to buffers."""
        self._buffers.rewind()

    def check_averaged(self, params: Iterable[torch.Tensor]) -> None:
        """Before a hand-written loop uses the gradients of these parameters."""
        missed = [m for m in self._modules if id(m) in self._wrapped and id(m) not in self._armed]
        if not missed:
            return
        given = {id(param) for param in params if param.grad is not None}
        for module in missed:
            if any(id(param) in given for param in module.parameters()):
                raise UsageError(
                    f"the gradients of {self._names[id(module)]!r} were not averaged, because only "
                    "parts of it were called in this step: call the module itself, or say "
                    "ddp=False and average them with job.all_reduce"
                )

    def expect(self, issued: Issued) -> None:
        """What the coming forward and backward passes are for: only a step's last one syncs."""
        if issued.micro == 0:
            self._keep_buffers(may_end_halfway=not issued.last_micro)
        self._sync = issued.last_micro
        self._empty = not issued.weight
        self._armed.clear()
        for wrapped in self._wrapped.values():
            wrapped.require_backward_grad_sync = self._sync

    def collect(self, issued: Issued) -> None:
        """After a backward pass: gradients add up in the parameters until the step's last one."""

    def scaled(self, weight: float) -> float:
        """What to multiply a loss by, for backward passes whose gradients are then only summed."""
        if not self._wrapped or self._group is None:
            return weight
        self.prescaled = True
        return weight / self._group.size

    def finish(self) -> None:
        """After backward: average what DDP did not see, and take over rank 0's buffers."""
        if not self._wrapped or self._group is None:
            return
        self._group.waits.check()
        for module in self._modules:
            if id(module) not in self._armed:
                self._average(module)
                self._armed.add(id(module))
        self._buffers.share(self._group)

    def _average(self, module: nn.Module) -> None:
        """For modules whose own forward was not called (only parts of them were)."""
        group = self._group
        assert group is not None
        for params in by_kind(p for p in module.parameters() if p.requires_grad).values():
            gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in params]
            exact = torch.promote_types(params[0].dtype, torch.float32)
            flat = torch.cat([gradient.reshape(-1).to(exact) for gradient in gradients])
            if self._empty:
                flat.zero_()
            group.waits.wait(group.all_reduce(flat, _SUM), flat)
            parts = flat.split([gradient.numel() for gradient in gradients])
            for param, part in zip(params, parts, strict=True):
                param.grad = part.view_as(param).to(param.dtype)

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self.before_evaluation is not None and not torch.is_grad_enabled():
            self.before_evaluation()
        try:
            wrapped = self._find(module)
            if wrapped is None:
                return None
            self._order_buckets(wrapped)
            return torch_private.before_forward(wrapped, args, kwargs)
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, self._group):
                raise
            self._wrapped = {}
            self._lost = True
            self._on_break(error)
            return None

    def _order_buckets(self, wrapped: DistributedDataParallel) -> None:
        """In its second forward DDP agrees with the others on the order of its buckets."""
        if id(wrapped) in self._ordered or not torch.is_grad_enabled():
            return
        assert self._group is not None
        if self._group.waits.call(partial(torch_private.rebuild_buckets, wrapped)):
            self._ordered.add(id(wrapped))

    def _after(self, module: nn.Module, args: Any, output: Any) -> Any:
        wrapped = self._wrapped.get(id(module))
        if wrapped is None:
            if self._lost:  # a script's own backward pass must not come to its end
                for tensor in torch_private.tensors_in(output):
                    if tensor.requires_grad:
                        tensor.register_hook(lambda _: self._refuse())
            return None
        if self._sync and torch.is_grad_enabled():
            self._armed.add(id(module))
        return torch_private.after_forward(wrapped, output)
