"""Lightning Fabric in an elastic job: a strategy whose rank and size are those of now.

Fabric keeps what it is good at: devices, precision, saving, loggers. Gradients are averaged and
steps are counted by the job, which `join` returns and whose `batches` the loop iterates over. A
step in which a member was lost did not happen: `optimizer.step()` returns False, and the same
samples come again.
"""

import os
from contextlib import suppress
from typing import Any

import torch
from lightning.fabric.strategies import Strategy
from lightning.fabric.utilities.rank_zero import rank_zero_only

from midflight.errors import UsageError, WorldChanged
from midflight.integrations.one_process import set_apart
from midflight.integrations.rank_zero import of_the_first
from midflight.protocol.environment import WorkerEnv
from midflight.runtime.job import Job, join

BACKEND = set_apart(os.environ)
REDUCTIONS = ("sum", "mean", "min", "max", "product")


class ElasticStrategy(Strategy):
    """`Fabric(strategy=ElasticStrategy())`, and `strategy.join(...)` after `fabric.setup(...)`."""

    def __init__(self, device: torch.device | str | None = None) -> None:
        super().__init__()
        worker = WorkerEnv.from_env(os.environ)
        self._place = (worker.rank, worker.size) if worker is not None else (0, 1)
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._job: Job | None = None
        self._has_gradients = False  # of the whole step, averaged
        rank_zero_only.rank = self.global_rank

    def join(self, model: Any, optimizer: Any, **options: Any) -> Job:
        """`mf.join`, for what `fabric.setup` has returned; the options are the same."""
        if getattr(self.precision, "scaler", None) is not None:
            raise UsageError(
                'precision="16-mixed" leaves out steps, which members would have to agree on: '
                'use "bf16-mixed"'
            )
        options.setdefault("backend", BACKEND)
        self._job = join(model=model.module, optimizer=optimizer.optimizer, **options)
        return self._job

    # --- where this member stands -------------------------------------------------------------

    def _follow(self) -> None:
        """Loggers ask who is the first of the members without asking the strategy."""
        if self._job is not None:
            self._place = self._job.rank, self._job.size
            rank_zero_only.rank = self.global_rank

    @property
    def global_rank(self) -> int:
        return self._place[0]

    @property
    def local_rank(self) -> int:
        """The same: one member prints, and not one on each machine."""
        return self._place[0]

    @property
    def world_size(self) -> int:
        return self._place[1]

    @property
    def is_global_zero(self) -> bool:
        return self.global_rank == 0

    @property
    def root_device(self) -> torch.device:
        return self._device

    def module_to_device(self, module: torch.nn.Module) -> None:
        module.to(self.root_device)

    # --- a step -------------------------------------------------------------------------------

    def backward(self, tensor: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        """Of the mean loss of a batch of `job.batches`."""
        self._has_gradients = self._joined.backward(tensor)

    def optimizer_step(self, optimizer: Any, **kwargs: Any) -> bool:
        """True if the step was completed."""
        if kwargs.get("closure") is not None:
            raise UsageError("an elastic step has no closure: call optimizer.step() without one")
        complete = self._has_gradients and self._joined.apply()
        self._has_gradients = False
        self._follow()
        return complete

    @property
    def _joined(self) -> Job:
        if self._job is None:
            raise UsageError("call strategy.join(model, optimizer) before the first step")
        return self._job

    # --- collectives --------------------------------------------------------------------------

    def all_reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """A new tensor. Raises WorldChanged if a member is lost, as `job.all_reduce` does."""
        name = str(reduce_op).rpartition(".")[2].lower().replace("avg", "mean")
        if name not in REDUCTIONS:
            raise UsageError(f"all_reduce knows {', '.join(REDUCTIONS)}, got {reduce_op!r}")
        if self._job is None or not isinstance(tensor, torch.Tensor):
            return tensor
        return self._job.all_reduce(tensor.detach().clone(), name)

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        if self._job is None or self._job.size == 1:
            return tensor
        rows = torch.zeros(self._job.size, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
        rows[self._job.rank] = tensor.detach()
        return self._job.all_reduce(rows)

    def barrier(self, *_: Any, **__: Any) -> None:
        """If a member is lost, nobody waits: the step that comes tells."""
        if self._job is not None:
            with suppress(WorldChanged):
                self._job.all_reduce(torch.zeros(1, device=self.root_device))

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """JSON values, from rank 0."""
        if self._job is None or self._job.size == 1:
            return obj
        if src != 0:
            raise UsageError(f"broadcast from rank {src}: only rank 0 is always there")
        return of_the_first(self._job, obj, self.root_device)
