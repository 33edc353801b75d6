"""Which of the two averages the gradients of a job."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from midflight.runtime.gradients.ddp import GradientSync
from midflight.runtime.gradients.deterministic import ExactSync


def gradient_sync(
    modules: Mapping[str, nn.Module],
    ddp: Mapping[str, Any] | Literal[False],
    deterministic: int | None,
    on_break: Callable[[BaseException], None],
) -> GradientSync | ExactSync:
    """`deterministic`: into how many shards each batch is cut."""
    if deterministic is not None:
        return ExactSync(modules, deterministic)
    return GradientSync(modules, ddp, on_break)
