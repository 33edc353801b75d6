"""How a script joins its job: the options of `mf.join`, which are explained there."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from midflight.runtime.shadow.eligibility import Joining


@dataclass(frozen=True)
class Options:
    backend: str | None = None
    ddp: Mapping[str, Any] | Literal[False] = field(default_factory=dict)
    resume: str | os.PathLike[str] | None = None
    deterministic: int | None = None
    verify_every: int | None = None
    joining: Joining = "auto"

    def in_common(self) -> dict[str, Any]:
        """What has to be the same on all members."""
        return {
            "deterministic": self.deterministic,
            "ddp": self.ddp is not False,
            "verify_every": self.verify_every,
        }

    def backends(self, modules: Iterable[nn.Module]) -> tuple[str, ...]:
        """Those that this member can use; several may share a machine's only GPU, with gloo."""
        if self.backend:
            return (self.backend,)
        if not any(p.is_cuda for module in modules for p in module.parameters()):
            return ("gloo",)
        return ("nccl", "gloo") if torch.cuda.device_count() > 1 else ("gloo", "nccl")
