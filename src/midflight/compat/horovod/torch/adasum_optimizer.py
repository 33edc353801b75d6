"""The distributed optimizer for Adasum: each rank takes its own step, then the steps are combined.

What Adasum combines is not the gradients but what the optimizer would have done with them.
"""

from typing import Any, NoReturn

import torch
from torch import Tensor

from midflight.compat.horovod.torch import mpi_ops as ops


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
