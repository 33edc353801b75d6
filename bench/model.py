"""What every system trains: one MLP per size, synthetic samples, SGD with momentum, one thread.

The global batch is the same at every world size and for every system, so that a step is the same
work whoever shares it. A sample is a block of rows, so that fetching 24 of them costs next to
nothing and no system is charged for its way of collating. On the reference machine (2 cores) a
step of two workers takes about 33 ms at 1 MB and about 0.25 s at 100 MB.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

GLOBAL_BATCH = 24  # divides by 2, 3, 4, 6, 8 and 12
STEPS_PER_EPOCH = 10_000
LAYERS = 4
SMALL_LAYERS, SMALL_WIDTH = 100, 32
SEED = 7


def width(megabytes: int) -> int:
    """The width at which LAYERS square layers of float32 make that many megabytes.

    0 megabytes stand for a model of 200 small parameters.
    """
    return round(256 * math.sqrt(megabytes)) if megabytes else SMALL_WIDTH


def rows_per_sample(megabytes: int) -> int:
    if not megabytes:
        return 4
    return 128 if megabytes < 10 else 4


def build(megabytes: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same model in every process, and its optimizer; from here on torch has one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    size, count = width(megabytes), LAYERS if megabytes else SMALL_LAYERS
    layers = [layer for _ in range(count) for layer in (nn.Linear(size, size), nn.ReLU())]
    model = nn.Sequential(*layers)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def criterion(prediction: Tensor, target: Tensor) -> Tensor:
    return nn.functional.mse_loss(prediction, target)


def state_bytes(megabytes: int) -> int:
    """Parameters and momentum: what a newcomer has to be given."""
    size = width(megabytes)
    return 2 * 4 * LAYERS * (size * size + size)


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """A long data set over a small pool of tensors that stay in memory."""

    def __init__(self, megabytes: int) -> None:
        generator = torch.Generator().manual_seed(SEED)
        shape = (32, rows_per_sample(megabytes), width(megabytes))
        self._x = torch.randn(shape, generator=generator)
        self._y = torch.randn(shape, generator=generator)

    def __len__(self) -> int:
        return STEPS_PER_EPOCH * GLOBAL_BATCH

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._x[index % 32], self._y[index % 32]


@dataclass
class Share(Sampler[list[int]]):
    """This worker's part of each global batch; a peer sets `rank` and `size` when they change."""

    rank: int
    size: int
    first: int = 0  # the step to begin with

    def __post_init__(self) -> None:
        self._order = torch.randperm(
            STEPS_PER_EPOCH * GLOBAL_BATCH, generator=torch.Generator().manual_seed(SEED)
        ).tolist()

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            for step in range(self.first % STEPS_PER_EPOCH, STEPS_PER_EPOCH):
                start, end = share(GLOBAL_BATCH, self.rank, self.size)
                first = step * GLOBAL_BATCH
                yield self._order[first + start : first + end]
            self.first = 0


def share(total: int, rank: int, size: int) -> tuple[int, int]:
    """From where to where the rank goes, when `total` is dealt out as evenly as can be."""
    return total * rank // size, total * (rank + 1) // size


def batches(megabytes: int, part: Share, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """What a peer's training loop iterates over; no worker processes, so nothing is prefetched."""
    part.first = first
    return iter(DataLoader(Samples(megabytes), batch_sampler=part))
