"""MNIST from its own files (`train-images-idx3-ubyte` and so on, also with .gz), as arrays."""

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from midflight.errors import UsageError


@dataclass(frozen=True)
class DataSet:
    images: Any
    labels: Any


@dataclass(frozen=True)
class DataSets:
    train: DataSet
    test: DataSet


def load_datasets(
    data_dir: str, normalize: bool = False, one_hot: bool = False, padded: bool = False
) -> DataSets:
    """`normalize`: from 0 to 1. `one_hot`: labels as rows. `padded`: 32 by 32 instead of 28."""
    folder = Path(data_dir)

    def load(prefix: str) -> DataSet:
        images = _read(folder / f"{prefix}-images-idx3-ubyte")
        labels = _read(folder / f"{prefix}-labels-idx1-ubyte")
        if padded:
            images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
        if normalize:
            images = (images / 255.0).astype(np.float32)
        return DataSet(images, np.eye(10, dtype=np.float32)[labels] if one_hot else labels)

    return DataSets(load("train"), load("t10k"))


def _read(path: Path) -> Any:
    """The array in an IDX file of bytes."""
    packed = path.with_name(path.name + ".gz")
    try:
        data = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise UsageError(f"{path} is no IDX file of bytes")
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)
