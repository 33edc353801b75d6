"""What a dataset must be, how it is loaded, and what the training loop gets of it.

Refuses what cannot be elastic (no length, no access by index, batches out of order) with one clear
error before anything starts. DataLoader workers are made to die with the training process: they
hold copies of its sockets, and a peer would otherwise wait for a dead member until they notice.
Which samples are loaded is the sampler's business, when is the feed's.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch.utils.data import DataLoader, IterableDataset

from midflight import prctl
from midflight.errors import DataError
from midflight.runtime.data.sampler import ElasticBatchSampler, Issued

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro batch in the training loop's hands."""

    data: Any  # as the loader collated it
    issued: Issued

    @property
    def x(self) -> Any:
        return self._element("x", 0)

    @property
    def y(self) -> Any:
        return self._element("y", 1)

    def __getitem__(self, key: Any) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def keys(self) -> Any:
        """For `model(**batch)`."""
        if not isinstance(self.data, Mapping):
            raise DataError(
                "`**batch` wants samples that are dicts, and the dataset's collate to "
                f"{type(self.data).__name__}: use batch.x and batch.y, or batch.data"
            )
        return self.data.keys()

    @property
    def indices(self) -> tuple[int, ...]:
        """The dataset indices it uses; empty when it is only a placeholder."""
        return self.issued.indices

    @property
    def step(self) -> int:
        return self.issued.extent.step

    @property
    def epoch(self) -> int:
        return self.issued.extent.epoch

    @property
    def weight(self) -> float:
        """What its mean loss counts for in the average over the members."""
        return self.issued.weight

    @property
    def last_micro(self) -> bool:
        """Whether the step is complete with it."""
        return self.issued.last_micro

    @property
    def global_size(self) -> int:
        """How many samples all members together use in this step."""
        return self.issued.extent.count

    def to(self, device: torch.device | str | int, non_blocking: bool = False) -> "Batch":
        """The same batch with its tensors on that device."""
        return replace(self, data=_moved(self.data, device, non_blocking))

    def _element(self, name: str, place: int) -> Any:
        if isinstance(self.data, tuple | list) and len(self.data) > place:
            return self.data[place]
        raise AttributeError(
            f"batch.{name} is element {place} of a tuple or list, and the dataset's samples "
            f"collate to {type(self.data).__name__}: use batch.data or batch[key]"
        )


def _moved(value: Any, device: torch.device | str | int, non_blocking: bool) -> Any:
    if hasattr(value, "to"):
        return value.to(device, non_blocking=non_blocking)
    if isinstance(value, Mapping):
        return {key: _moved(item, device, non_blocking) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_moved(item, device, non_blocking) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


class LoaderOptions(TypedDict, total=False):
    """What a script may say about its DataLoader; the rest follows from the plan."""

    num_workers: int
    prefetch_factor: int | None
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool
    worker_init_fn: Callable[[int], None] | None
    timeout: float
    multiprocessing_context: Any


def sample_count(dataset: Any) -> int:
    """How many samples a map-style dataset has; any other is refused."""
    map_style = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if isinstance(dataset, IterableDataset) or not map_style:
        raise DataError(
            f"wanted a map-style dataset (with __len__ and __getitem__), got "
            f"{type(dataset).__name__}: an elastic job shares samples out by their index, "
            "so wrap the source in a Dataset that can be indexed"
        )
    return len(dataset)


def build_loader(
    dataset: Any, sampler: ElasticBatchSampler, **options: "Unpack[LoaderOptions]"
) -> DataLoader[Any]:
    """A DataLoader that loads for this member, with workers that stay from epoch to epoch."""
    allowed = list(LoaderOptions.__annotations__)
    unknown = [name for name in options if name not in allowed]
    if unknown:
        raise DataError(
            f"{', '.join(unknown)} cannot be set here, what is loaded follows from "
            f"global_batch_size and the world: leave it out, or use one of {', '.join(allowed)}"
        )
    _check_dataset(dataset, sampler)
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        persistent_workers=options.get("num_workers", 0) > 0,
        # its own, because each new iterator draws from it, and the script's must not notice
        generator=torch.Generator().manual_seed(sampler.plan.seed),
        **options,
    )
    return adopted(loader, sampler)


def adopted(loader: DataLoader[Any], sampler: ElasticBatchSampler) -> DataLoader[Any]:
    """A script's own loader, once it is known to do what the feed relies on."""
    if not any(used is sampler for used in (loader.batch_sampler, loader.sampler)):
        raise DataError(
            "the DataLoader does not use this sampler: "
            "make it with DataLoader(dataset, batch_sampler=sampler)"
        )
    if not loader.in_order:
        raise DataError(
            "the DataLoader has in_order=False, but batches must come in the order of the steps: "
            "leave in_order out"
        )
    _check_dataset(loader.dataset, sampler)
    if not isinstance(loader.worker_init_fn, WorkerStart):
        loader.worker_init_fn = WorkerStart(loader.worker_init_fn)
    return loader


def _check_dataset(dataset: Any, sampler: ElasticBatchSampler) -> None:
    samples = sample_count(dataset)
    if samples != sampler.plan.samples:
        raise DataError(
            f"the DataLoader's dataset has {samples} samples, its sampler was made for "
            f"{sampler.plan.samples}: make both from the same dataset"
        )


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """The first thing a DataLoader worker does: see to its own end, then what the script wants."""

    then: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        if sys.platform == "linux":  # elsewhere torch's own watchdog ends it, within 5 s
            prctl.die_with_parent()
            if _is_orphan():  # its parent died before the signal was asked for
                os._exit(1)
        if self.then is not None:
            self.then(worker)


def _is_orphan() -> bool:
    """Whether the process that wanted this one is gone; with a fork server, that is no parent."""
    wanted_by = multiprocessing.parent_process()
    if wanted_by is None or wanted_by.pid is None or os.getppid() == wanted_by.pid:
        return False
    try:
        stat = Path(f"/proc/{wanted_by.pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"  # dead, and not yet waited for
