"""Gradients averaged over the world, at the speed of DistributedDataParallel.

The user's module is not wrapped: DDP objects are built around it, one per world, and driven from
forward hooks on the module itself. They are cheap to build, so each new world gets new ones. What
DDP would do in the user's forward call and might fail there (buffers, bucket order) is done or
caught here, so that a lost member shows up in `job.step` and nowhere else.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from midflight.errors import WorldChanged
from midflight.runtime.group import Group, is_communication_error
from midflight.runtime.sampler import Issued

BUFFER_BYTES = 250 << 20
_SUM = dist.AllreduceOptions()
_KNOWN = inspect.signature(DistributedDataParallel.__init__).parameters
_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _KNOWN else "broadcast_buffers"
# Members have equal states already. Torch before 2.7 looks after that again, and takes its time.
_NO_FIRST_SYNC = {"init_sync": False} if "init_sync" in _KNOWN else {}


class GradientSync:
    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        options: Mapping[str, Any],
        on_break: Callable[[BaseException], None],
    ) -> None:
        self._modules = [m for m in modules.values() if _trainable(m)]
        self._buffers = [b for m in modules.values() for b in m.buffers()]
        self._options = {_BUFFERS: False, **_NO_FIRST_SYNC, **options}
        self._on_break = on_break
        self._group: Group | None = None
        self._wrapped: dict[int, DistributedDataParallel] = {}
        self._armed: set[int] = set()  # modules whose forward was seen in this step
        self._ordered: set[int] = set()  # DDP objects that have settled their buckets
        self.prescaled = False  # the loss was divided by the size of the world already
        self._sync = True
        self._hooks = [
            hook
            for module in self._modules
            for hook in (
                module.register_forward_pre_hook(self._before, with_kwargs=True),
                module.register_forward_hook(self._after),
            )
        ]

    def attach(self, group: Group) -> None:
        """From now on gradients are averaged over this group."""
        self.detach()
        self._group = group
        if group.size > 1:
            self._wrapped = {id(module): self._wrap(module, group) for module in self._modules}

    def _wrap(self, module: nn.Module, group: Group) -> DistributedDataParallel:
        wrapped = DistributedDataParallel(module, process_group=group.pg, **self._options)
        wrapped.register_comm_hook(group, self._reduce)
        return wrapped

    def _reduce(self, group: Group, bucket: c10d.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """DDP hands a bucket of gradients over; it waits for a future that a cut can end."""
        buffer = bucket.buffer()
        if not self.prescaled:
            buffer.div_(group.size)
        return group.waits.future(group.pg.allreduce([buffer], _SUM), buffer)

    def detach(self) -> None:
        """Drop the DDP objects; their hooks on the parameters go with them."""
        self._wrapped = {}
        self._armed.clear()
        self._ordered.clear()
        self._group = None

    def close(self) -> None:
        self.detach()
        for hook in self._hooks:
            hook.remove()

    def expect(self, issued: Issued) -> None:
        """What the coming forward and backward passes are for: only a step's last one syncs."""
        self._sync = issued.last_micro
        self._armed.clear()
        for wrapped in self._wrapped.values():
            wrapped.require_backward_grad_sync = self._sync

    def rewind(self) -> None:
        """The step under way did not happen; DDP leaves nothing behind that a retry would see."""

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
        if self._buffers:
            group = self._group
            group.waits.call(
                lambda: c10d._broadcast_coalesced(group.pg, self._buffers, BUFFER_BYTES, 0)
            )

    def _average(self, module: nn.Module) -> None:
        """For modules whose own forward was not called (only parts of them were)."""
        assert self._group is not None
        params = [p for p in module.parameters() if p.requires_grad]
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in params]
        flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
        if not self.prescaled:
            flat.div_(self._group.size)
        self._group.waits.wait(self._group.pg.allreduce([flat], _SUM), flat)
        offset = 0
        for param, gradient in zip(params, gradients, strict=True):
            part = flat[offset : offset + gradient.numel()].view_as(gradient)
            param.grad = part.to(gradient.dtype)
            offset += gradient.numel()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        wrapped = self._wrapped.get(id(module))
        if wrapped is None:
            return None
        try:
            self._order_buckets(wrapped)
            return wrapped._pre_forward(*args, **kwargs)
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, self._group):
                raise
            self._wrapped = {}
            self._on_break(error)
            return None

    def _order_buckets(self, wrapped: DistributedDataParallel) -> None:
        """In its second forward DDP agrees with the others on the order of its buckets."""
        if id(wrapped) in self._ordered or not torch.is_grad_enabled():
            return
        assert self._group is not None
        if self._group.waits.call(wrapped.reducer._rebuild_buckets):
            self._ordered.add(id(wrapped))

    def _after(self, module: nn.Module, args: Any, output: Any) -> Any:
        wrapped = self._wrapped.get(id(module))
        if wrapped is None:
            return None
        if self._sync and torch.is_grad_enabled():
            self._armed.add(id(module))
        return wrapped._post_forward(output)


def _trainable(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())
