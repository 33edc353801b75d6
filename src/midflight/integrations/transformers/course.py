"""How long a training is, as Trainer counts it; the same at any size of the world."""

import math
from dataclasses import dataclass
from typing import Any

from midflight.runtime.data.loader import Batch, sample_count


@dataclass(frozen=True)
class Course:
    """The global batch is what the script has on one device: it is cut up when there are more."""

    dataset: Any
    micro_batch: int  # what a device holds
    accumulated: int  # of those in a global batch
    drop_last: bool

    @classmethod
    def of(cls, dataset: Any, args: Any) -> "Course":
        size, count = args.per_device_train_batch_size, args.gradient_accumulation_steps
        return cls(dataset, size, count, args.dataloader_drop_last)

    @property
    def global_batch(self) -> int:
        return self.micro_batch * self.accumulated

    @property
    def steps_per_epoch(self) -> int:
        whole, rest = divmod(sample_count(self.dataset), self.global_batch)
        return whole if self.drop_last or not rest else whole + 1

    def __len__(self) -> int:
        """In micro batches: Trainer takes it for its DataLoader."""
        return self.steps_per_epoch * self.accumulated

    def cursor(self, step: int) -> tuple[int, int, int]:
        """Where a job stands after so many steps: the step, the epoch, and samples used of it."""
        epoch, done = divmod(step, self.steps_per_epoch)
        return step, epoch, done * self.global_batch

    def ends_epoch(self, batch: Batch) -> bool:
        return self._step_of(batch) == self.steps_per_epoch

    def epochs_after(self, batch: Batch) -> float:
        """How many epochs are done with this batch's step."""
        return batch.epoch + self._step_of(batch) / self.steps_per_epoch

    def _step_of(self, batch: Batch) -> int:
        """Of its epoch, from 1 on."""
        return math.ceil(batch.issued.extent.stop / self.global_batch)
