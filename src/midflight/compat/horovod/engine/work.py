"""One named collective of this member, from the call to its result."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from midflight.compat.horovod.engine.requests import Request


@dataclass
class Work:
    request: Request
    tensors: list[Tensor]  # what this member gives
    outputs: list[Tensor]  # where results go; empty: their size is known only later
    after: Callable[[Any], Any] | None = None  # what the caller makes of the results
    steady: bool = False  # the same request comes in every step, with tensors of one kind
    ready: Any = None  # a CUDA event: the tensors are complete
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    result: Any = None

    def succeed(self, result: Any) -> None:
        if self.ready is not None:  # whoever waits uses another stream than this thread
            torch.cuda.current_stream().synchronize()
        self.result = result
        self.done.set()

    def fail(self, error: Exception) -> None:
        self.error = error
        self.done.set()
