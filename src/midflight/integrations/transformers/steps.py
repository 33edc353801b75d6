"""The micro batches of a step, all at once: how a Trainer wants them.

A loss that is the mean over all labels of a step has to know how many there are before the first
backward pass.
"""

from collections.abc import Iterable, Iterator

from midflight.runtime.data.loader import Batch


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
