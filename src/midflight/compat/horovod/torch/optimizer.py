"""DistributedOptimizer: the optimizer it is given, with gradients reduced over all ranks.

The result is of a subclass of the optimizer's own class, with the same name, so that everything
else that looks at it finds what it expects. Gradients go out in buckets while backward runs;
`step` waits for them. After a change of the world nothing of an unfinished step is left.
"""

import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from midflight.compat.horovod.common.basics import size
from midflight.compat.horovod.common.process_sets import ProcessSet, global_process_set
from midflight.compat.horovod.engine import requests as words
from midflight.compat.horovod.engine.collectives import Work
from midflight.compat.horovod.engine.process import PROCESS
from midflight.compat.horovod.engine.requests import Request
from midflight.compat.horovod.torch import mpi_ops as ops
from midflight.compat.horovod.torch.buckets import Bucket, Slot, arrange
from midflight.compat.horovod.torch.compression import Compression

_MORE_THAN_ONCE = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
_ZEROED = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(). This is prohibited as it can cause a race condition."
)
_SYNCHRONISED = (
    "optimizer.step() called without optimizer.skip_synchronize() context after "
    "optimizer.synchronize(). This can cause training slowdown. You may want to consider using "
    "optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code."
)
_living: "weakref.WeakSet[Any]" = weakref.WeakSet()


def forget_unfinished_steps() -> None:
    """The world has changed: what was under way in the old one does not count."""
    for optimizer in tuple(_living):
        optimizer._forget()


class Methods:
    """What a distributed optimizer adds to its class. Never made by itself."""

    param_groups: list[dict[str, Any]]
    _names: dict[Tensor, str]

    def _set_up(self, named: list[tuple[str, Tensor]], options: dict[str, Any]) -> None:
        self._options = options
        self._named = named
        self._passes: int = options["backward_passes_per_step"]
        self._handles: dict[int, tuple[int, list[Any]]] = {}  # bucket to handle and contexts
        self._sparse: dict[Slot, Any] = {}
        self._requests: dict[tuple[int, int], Request] = {}
        self._computed = False  # gradients are there that no step has used
        self._synchronized = False
        self._should_synchronize = True
        self._buckets: list[Bucket] = []
        self._slots: dict[Tensor, Slot] = {}
        self._arrange()
        self._hooks = [
            slot.parameter.register_post_accumulate_grad_hook(partial(self._hook, slot))
            for slot in self._watched()
        ]
        _living.add(self)

    def _watched(self) -> list[Slot]:
        """Whose gradients are looked at while backward runs.

        One bucket goes out after backward in any case, and a hook for each of its parameters would
        cost more than the transfer: two of them tell that there was a backward pass.
        """
        if len(self._buckets) != 1:
            return list(self._slots.values())
        slots = self._buckets[0].slots
        return slots if len(slots) < 3 else [slots[0], slots[-1]]

    def _arrange(self) -> None:
        groups, count = self._options["groups"], self._options["num_groups"]
        if isinstance(groups, int):
            groups, count = None, groups
        self._buckets = arrange(self._named, self._passes, groups, count)
        self._slots = {s.parameter: s for bucket in self._buckets for s in bucket.slots}
        for slot in self._slots.values():
            slot.sparse = isinstance(self, torch.optim.SparseAdam)

    # --- during backward --------------------------------------------------------------------

    def _hook(self, slot: Slot, parameter: Tensor) -> None:
        if not self._takes_part:
            return
        slot.delay -= 1
        if slot.delay > 0:
            return
        if slot.delay < 0:
            raise AssertionError(_MORE_THAN_ONCE)
        self._computed = True
        bucket = slot.bucket
        bucket.complete += 1
        if bucket.complete == len(bucket.slots):
            self._send(bucket)

    @property
    def _takes_part(self) -> bool:
        """A rank that is not in the optimizer's process set trains by itself."""
        members: ProcessSet = self._options["process_set"]
        return PROCESS.standing.arrived and members.included()

    def _send(self, bucket: Bucket) -> None:
        """Hand a bucket's gradients over; those that are missing count as zeros."""
        bucket.sent = True
        dense: list[Slot] = []
        for slot in bucket.slots:
            grad = slot.parameter.grad
            slot.sparse = slot.sparse if grad is None else grad.is_sparse
            if grad is None:
                grad = slot.parameter.grad = _zeros(slot)
            if grad.is_sparse and self._options["sparse_as_dense"]:
                slot.parameter.grad = grad.to_dense()
            elif grad.is_sparse:
                members = self._options["process_set"]
                named = f"{slot.name}.sparse"
                op = self._options["op"]
                self._sparse[slot] = ops.sparse_allreduce_async(grad, named, op, members)
                continue
            dense.append(slot)
        if dense:
            self._handles[bucket.number] = self._reduce(bucket, dense)

    def _reduce(self, bucket: Bucket, slots: list[Slot]) -> tuple[int, list[Any]]:
        compression = self._options["compression"]
        sent, contexts = [], []
        for slot in slots:
            grad = slot.parameter.grad
            assert grad is not None
            if compression is Compression.none:
                sent.append(grad)
                continue
            tensor, context = compression.compress(grad.detach())
            sent.append(tensor)
            contexts.append((slot, context))
        key = (bucket.number, len(slots))
        if key not in self._requests:
            self._requests[key] = self._request(bucket, slots, sent)
        one_kind = len(set(self._requests[key].dtypes)) == 1
        work = Work(self._requests[key], sent, sent, steady=one_kind)
        return PROCESS.submit(work), contexts

    def _request(self, bucket: Bucket, slots: list[Slot], sent: list[Tensor]) -> Request:
        op = self._options["op"]
        factor = self._options["gradient_predivide_factor"]
        return ops.request(
            words.ALLREDUCE,
            f"gradients.{bucket.number}.{slots[0].name}",
            sent,
            op=op.name.lower(),
            prescale=1.0 / factor,
            postscale=float(factor),
            process_set=self._options["process_set"],
        )

    # --- the step ---------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until the gradients of all ranks are in `.grad`."""
        if self._takes_part and self._any_gradient():
            for bucket in self._buckets:
                if not bucket.sent:
                    self._send(bucket)
        for handle, contexts in tuple(self._handles.values()):
            results = PROCESS.synchronize(handle)
            if contexts:  # otherwise they are where they belong
                self._take(results, contexts)
        for slot, finish in self._sparse.items():
            slot.parameter.grad = finish()
        self._begin_anew()
        self._synchronized = True

    def _any_gradient(self) -> bool:
        """Also for a rank whose gradients are all missing: the others have sent theirs."""
        return PROCESS.standing.size > 1 or bool(self._handles)

    def _take(self, results: list[Tensor], contexts: list[tuple[Slot, Any]]) -> None:
        compression = self._options["compression"]
        for tensor, (slot, context) in zip(results, contexts, strict=True):
            grad = slot.parameter.grad
            if grad is None:
                continue
            whole = compression.decompress(tensor, context)
            if whole.data_ptr() != grad.data_ptr():
                grad.copy_(whole)

    def _begin_anew(self) -> None:
        self._computed = False
        self._handles.clear()
        self._sparse.clear()
        for bucket in self._buckets:
            bucket.complete, bucket.sent = 0, False
            for slot in bucket.slots:
                slot.delay = self._passes

    def _forget(self) -> None:
        self._begin_anew()
        self._requests.clear()
        self._synchronized = False
        for slot in self._slots.values():
            slot.parameter.grad = None

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For `step` after an explicit `synchronize`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._passes = self._options["backward_passes_per_step"] = passes
        self._begin_anew()

    def step(self, closure: Any = None) -> Any:
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(_SYNCHRONISED, stacklevel=2)
            self.synchronize()
        self._synchronized = False
        return super(self.__class__, self).step(closure)  # type: ignore[misc]

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        if self._computed:
            raise AssertionError(_ZEROED)
        return super(self.__class__, self).zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        self._begin_anew()
        self._synchronized = False
        return super(self.__class__, self).load_state_dict(*args, **kwargs)  # type: ignore[misc]


def _zeros(slot: Slot) -> Tensor:
    """What counts for a gradient that is missing."""
    parameter = slot.parameter
    if not slot.sparse:
        return torch.zeros_like(parameter)
    rows = parameter.new_zeros((0, *parameter.shape[1:]))  # as of an embedding: whole rows
    index = torch.zeros((1, 0), dtype=torch.int64, device=parameter.device)
    return torch.sparse_coo_tensor(index, rows, parameter.shape, check_invariants=False)


def DistributedOptimizer(  # noqa: PLR0913 - Horovod's name and signature
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = ops.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Sequence[Sequence[Tensor]] | int | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> torch.optim.Optimizer:
    if gradient_predivide_factor != 1.0 and op != ops.Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups:
        warnings.warn("Parameter `num_groups` has been replaced by `groups`.", stacklevel=2)
    _check_groups(groups)
    named = _named(optimizer, named_parameters)
    adasum = op == ops.Adasum and size() > 1
    methods = AdasumMethods if adasum else Methods
    base = type(optimizer)
    body = {n: m for n, m in vars(methods).items() if n not in ("__dict__", "__weakref__")}
    wrapped: Any = object.__new__(type(base.__name__, (base,), body))
    # What a scheduler has bound to the other object's `step` stays with that object.
    wrapped.__dict__.update({n: v for n, v in vars(optimizer).items() if n != "step"})
    options = {
        "compression": compression,
        "backward_passes_per_step": backward_passes_per_step,
        "op": ops.ReduceOp(op),
        "gradient_predivide_factor": gradient_predivide_factor,
        "num_groups": num_groups,
        "groups": groups,
        "sparse_as_dense": sparse_as_dense,
        "process_set": process_set,
    }
    wrapped._set_up(named, options)
    result: torch.optim.Optimizer = wrapped
    return result


def _check_groups(groups: Any) -> None:
    if groups is None or (isinstance(groups, int) and groups >= 0):
        return
    if isinstance(groups, int) or not all(isinstance(g, list | tuple) for g in groups):
        raise ValueError("groups should be a non-negative integer or a list of list of tensors.")
    if not all(isinstance(p, Tensor) for group in groups for p in group):
        raise ValueError("groups must consist of torch.Tensor.")
    ids = [id(p) for group in groups for p in group]
    if len(ids) != len(set(ids)):
        raise ValueError("A parameter can only appear once in groups.")


def _named(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> list[tuple[str, Tensor]]:
    every = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        named = [(f"allreduce.noname.{place}", p) for place, p in enumerate(every)]
        return [(name, p) for name, p in named if p.requires_grad]
    given = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in given):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by model.named_parameters()."
        )
    twice = [name for name, count in Counter(name for name, _ in given).items() if count > 1]
    if twice:
        raise ValueError(
            "Parameter names in named_parameters must be unique. "
            f"Found duplicates: {', '.join(twice)}"
        )
    unnamed = {id(p) for p in every} - {id(p) for _, p in given}
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(map(str, unnamed))}"
        )
    ours = {id(p) for p in every}
    return [(name, p) for name, p in given if id(p) in ours and p.requires_grad]


class AdasumMethods:
    """What it adds to the optimizer's class. Never made by itself."""

    def _set_up(self, named: list[tuple[str, Tensor]], options: dict[str, Any]) -> None:
        self._named = named
        self._options = options

    def synchronize(self) -> None:
        """Nothing is under way before `step`."""

    def _forget(self) -> None:
        for _, parameter in self._named:
            parameter.grad = None

    def skip_synchronize(self) -> NoReturn:
        raise AssertionError(
            "Skipping synchronization is not supported when using Adasum optimizer."
        )

    def set_backward_passes_per_step(self, passes: int) -> None:
        self._options["backward_passes_per_step"] = passes

    def step(self, closure: Any = None) -> Any:
        before = [parameter.detach().clone() for _, parameter in self._named]
        result = super(self.__class__, self).step(closure)  # type: ignore[misc]
        compression = self._options["compression"]
        with torch.no_grad():
            handles = []
            for (name, parameter), start in zip(self._named, before, strict=True):
                delta, context = compression.compress(parameter - start)
                handle = ops.allreduce_async_(
                    delta.contiguous(), name=f"delta.{name}", op=ops.Adasum
                )
                handles.append((handle, context))
            for (_, parameter), start, (handle, context) in zip(
                self._named, before, handles, strict=True
            ):
                delta = compression.decompress(ops.synchronize(handle), context)
                parameter.copy_(start + delta)
        return result
