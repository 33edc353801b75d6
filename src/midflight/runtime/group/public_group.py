"""The process group as a script sees it: every wait in it ends when the group is cut.

A script's own collectives, and those of a DistributedDataParallel of its own, wait inside torch,
where nothing reaches them if gloo has lost what they wait for. Here the works that they wait for
are ours, as in `waits`, and fail at the cut. They are noticed, too: in a step with one in which all
wait for all, nothing else has to keep the members together. NCCL's are left alone: an abort ends
those.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from midflight.errors import TorchUnsupported
from midflight.runtime import torch_private
from midflight.runtime.group.waits import Waits

_MEETINGS = (  # they end for nobody before all have begun them
    "allreduce",
    "allreduce_coalesced",
    "allgather",
    "allgather_coalesced",
    "_allgather_base",
    "reduce_scatter",
    "_reduce_scatter_base",
    "alltoall",
    "alltoall_base",
    "barrier",
)
_OPERATIONS = (*_MEETINGS, "broadcast", "gather", "scatter", "reduce", "send", "recv")


def check_waits(what: str, backend: str) -> None:
    """Refuse what waits inside torch, if this torch is one in which no cut would end that."""
    if backend == "gloo" and not torch_private.PYTHON_WORKS:
        raise TorchUnsupported(
            f"{what} needs torch 2.7 or later with gloo, and this is {torch.__version__}: if a "
            "member is lost, others could wait for it in there for ever. Install a newer torch, or "
            "do without: mf.join averages gradients by itself, and job.all_reduce other tensors"
        )


def cuttable(group: Any, gloo: Any, waits: Waits, quiet: frozenset[str] = frozenset()) -> Any:
    """`group`, which is gloo's alone, with waits that a cut ends; as it is where torch cannot.

    Works of `quiet` operations end at the cut without an error: whoever gave the group away asks
    `waits` itself, when the caller in between, which is torch, is through.
    """
    if not torch_private.PYTHON_WORKS:
        return group
    return _Cuttable(group, gloo, waits, quiet)


class _Cuttable(dist.ProcessGroup):
    def __init__(self, inner: Any, gloo: Any, waits: Waits, quiet: frozenset[str]) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]
        self._inner = inner
        self._waits = waits
        self._quiet = quiet
        backends = dict.fromkeys(torch_private.device_types(inner), ("gloo", gloo))
        torch_private.assemble(self, inner.group_name, backends, "gloo")

    def getBackendName(self) -> str:
        return "gloo"


class _Work(torch_private.Work):
    def __init__(self, waits: Waits, inner: Any, tensors: list[Any]) -> None:
        super().__init__()
        self._waits = waits
        self._inner = inner
        self._future = _future(waits, inner, tensors, self._check)

    def _check(self) -> None:
        self._waits.check()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """However long it takes, as everywhere here: hangs are found by heartbeats."""
        try:
            if self._future is not None:
                self._future.wait()
            else:
                self._waits.call(self._inner.wait)
        finally:
            self._check()
        return True

    def get_future(self) -> Any:
        return self._future if self._future is not None else self._inner.get_future()

    def is_completed(self) -> bool:
        if self._future is None:
            return bool(self._inner.is_completed())
        return bool(self._future.done())


class _QuietWork(_Work):
    def _check(self) -> None:
        """Not here."""


def _future(waits: Waits, work: Any, tensors: list[Any], check: Callable[[], None]) -> Any:
    """Of the tensors, failed at a cut; None if this operation's works have none."""
    try:
        work.get_future()
    except RuntimeError:
        return None
    first = next((tensor for tensor in tensors if isinstance(tensor, Tensor)), torch.empty(0))

    def checked(done: Any) -> list[Any]:
        done.value()
        check()
        return tensors

    return waits.future(work, first).then(checked)


def _operation(name: str) -> Callable[..., _Work]:
    def operate(self: Any, *given: Any, **named: Any) -> _Work:
        results = given[0] if given else []
        tensors = [results] if isinstance(results, Tensor) else _flat(results)
        kind = _QuietWork if name in self._quiet else _Work
        self._waits.met |= name in _MEETINGS
        return kind(self._waits, getattr(self._inner, name)(*given, **named), tensors)

    return operate


def _flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, list | tuple) else []


for _name in _OPERATIONS:
    setattr(_Cuttable, _name, _operation(_name))
