"""A durable copy of the state, for the day when every worker dies.

One file, written beside its final name and moved there when it is complete, so that it is whole
or absent. It is read without unpickling anything but tensors.
"""

import os
import pickle  # noqa: TID251 - for the name of an error; nothing is unpickled here
import struct
import tempfile
from pathlib import Path

import torch

from midflight.errors import StateError
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Snapshot, layout_of

# What torch and the readers of our own raise for a file with other bytes in it.
_DAMAGED = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    EOFError,
    pickle.UnpicklingError,
    struct.error,
)


def save(path: Path, snapshot: Snapshot) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                torch.save({"blob": snapshot.blob, "tensors": snapshot.tensors}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise StateError(f"the checkpoint {path} could not be written: {error.strerror}") from None


def load(path: Path, holdings: Holdings) -> dict[str, object] | None:
    """Put a checkpoint's state into `holdings`; None if there is no file."""
    if not path.exists():
        return None
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        snapshot = Snapshot(content["blob"], content["tensors"], layout_of(content["tensors"]))
        return holdings.restore(snapshot, rng=True)
    except StateError as error:
        raise StateError(f"{path}: {error}") from None
    except _DAMAGED as error:
        raise StateError(
            f"{path} is not a Midflight checkpoint, or is damaged: {error!s:.500}"
        ) from None
