"""The micro batches of a step, all at once: how a Trainer wants them.

A loss that is the mean over all labels of a step has to know how many there are before the first
backward pass.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch

from midflight.errors import WorldChanged
from midflight.runtime.data.loader import Batch
from midflight.runtime.job import Job


def whole_steps(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """The micro batches of this member's share, step by step; a step that is void is left out."""
    step: list[Batch] = []
    for batch in batches:
        if batch.issued.micro == 0:
            step = []
        step.append(batch)
        if batch.last_micro or is_rehearsal(batch):
            yield step


def is_rehearsal(batch: Batch) -> bool:
    """Whether it is for a step that does not count, in which a newcomer gets ready."""
    return batch.step < 0


def share_of(batch: Batch) -> float:
    """The part of the global batch that it is."""
    return len(batch.indices) / batch.global_size


def of_the_first(job: Job, value: Any, device: torch.device) -> Any:
    """What rank 0 has in place of this value, which is JSON; None: somebody was lost meanwhile."""
    with suppress(WorldChanged):
        is_first = job.rank == 0
        said = json.dumps(value, default=float).encode() if is_first else b""
        length = job.all_reduce(torch.tensor([len(said)], device=device))
        letters = torch.zeros(int(length.item()), dtype=torch.uint8)
        if is_first:
            letters.copy_(torch.frombuffer(bytearray(said), dtype=torch.uint8))
        heard = job.all_reduce(letters.to(device))
        return json.loads(bytes(heard.tolist()))
    return None
