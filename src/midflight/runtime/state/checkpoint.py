"""A durable copy of the state, for the day when every worker dies.

One file, written beside its final name and moved there when it is complete, so that it is whole
or absent. It is read without unpickling anything but tensors. Whoever reads may also name a folder
of checkpoints (`checkpoint_folder`), of which the last one that is whole counts.
"""

import os
import pickle  # noqa: TID251 - for the name of an error; nothing is unpickled here
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from midflight import terminal
from midflight.errors import StateError
from midflight.runtime.state import checkpoint_folder
from midflight.runtime.state.holdings import EXTRA, VALUES, Holdings
from midflight.runtime.state.layout import Snapshot, layout_of
from midflight.runtime.state.tree import unpack

# What torch and the readers of our own raise for a file with other bytes in it.
_DAMAGED = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,  # by torch.load
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


def load_into(path: Path, holdings: Holdings) -> dict[str, object] | None:
    """Put a checkpoint's state into `holdings`; None if there is none.

    `path`: a file, or a folder of checkpoints, of which the last one that is whole is taken.
    """
    found = _find(path)
    if found is None:
        return None
    source, snapshot = found
    try:
        return holdings.restore(snapshot, rng=True)
    except StateError as error:
        raise StateError(f"{source}: {error}") from None
    except _DAMAGED as error:
        raise _not_ours(source, error) from None


@dataclass(frozen=True)
class Saved:
    """A checkpoint, as a notebook looks at it."""

    path: Path
    step: int  # how many were complete
    epoch: int
    objects: Mapping[str, Any]  # what was passed to `join`, each as its state_dict
    state: Mapping[str, Any]  # the values of `job.state`

    def __getitem__(self, name: str) -> Any:
        return self.objects[name]


def load(path: str | os.PathLike[str]) -> Saved:
    """A checkpoint's content, in host memory. `path`: a file, a manifest, or a folder of them."""
    found = _find(Path(path))
    if found is None:
        raise StateError(f"there is no checkpoint in {path}")
    source, snapshot = found
    try:
        tree = unpack(snapshot.blob, snapshot.tensors)
        extra, state = tree[EXTRA], tree[VALUES]
        objects = {name: held for name, held in tree.items() if not name.startswith("job.")}
        return Saved(source, extra["step"], extra["epoch"], objects, state)
    except _DAMAGED as error:
        raise _not_ours(source, error) from None


def _find(path: Path) -> tuple[Path, Snapshot] | None:
    if path.is_dir():
        return _last_whole(path)
    if not path.exists():
        return None
    if path.suffix == ".json":
        return path, checkpoint_folder.read(path)
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        return path, Snapshot(content["blob"], content["tensors"], layout_of(content["tensors"]))
    except _DAMAGED as error:
        raise _not_ours(path, error) from None


def _last_whole(folder: Path) -> tuple[Path, Snapshot] | None:
    try:
        listed = checkpoint_folder.entries(folder)
    except OSError as error:
        raise StateError(f"{folder} cannot be read: {error.strerror}") from None
    for entry in listed:
        try:
            return entry.path, checkpoint_folder.read(entry.path)
        except StateError as error:
            terminal.say(f"warning: {error}; the checkpoint before it is used")
    if listed:
        raise StateError(
            f"none of the {len(listed)} checkpoints in {folder} is whole: "
            "take the folder away to begin anew"
        )
    return None


def _not_ours(path: Path, error: BaseException) -> StateError:
    return StateError(f"{path} is not a Midflight checkpoint, or is damaged: {error!s:.500}")
