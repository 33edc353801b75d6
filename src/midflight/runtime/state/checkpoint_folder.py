"""A folder of checkpoints: what one looks like on the disk, which is the last, and which may go.

A checkpoint is two files. `000007-step-1200-3fa9c1d2.safetensors` holds the tensors, in the format
of that name, so that other programs can read them. `000007-step-1200.json` is the manifest: where
the job stood, the tree of the state with its tensors numbered, and size and checksum of the other
file. It is written last, when the tensors are on the disk, under another name that is then changed.
A crash at any byte therefore leaves no manifest, and what has no manifest is no checkpoint. The
number in front counts up, so that the last one written is the newest, whatever its step is.
"""

import ctypes
import json
import os
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from midflight import atomic_file
from midflight.errors import StateError
from midflight.runtime.state.layout import Layout, Slot, Snapshot, memory_of
from midflight.runtime.state.tree import DTYPES

VERSION = 1
CHUNK = 8 << 20  # bytes that are written and summed at once, while they are in the cache
SYNCED = 256 << 20  # bytes after which those written are to be on the disk, too
_MANIFEST = re.compile(r"(\d{6,})-step-(\d+)\.json")
_TENSORS = re.compile(r"((\d{6,})-step-\d+)-[0-9a-f]{8}\.safetensors")
_SEALED = re.compile(rb'\{"crc32":(\d{1,10}),"checkpoint":(\{.*\})\}\n', re.DOTALL)
_NAMES = {
    "torch.float64": "F64",
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.float8_e5m2": "F8_E5M2",
    "torch.complex64": "C64",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.int16": "I16",
    "torch.int8": "I8",
    "torch.uint64": "U64",
    "torch.uint32": "U32",
    "torch.uint16": "U16",
    "torch.uint8": "U8",
    "torch.bool": "BOOL",
}


@dataclass(frozen=True, order=True)
class Entry:
    """A checkpoint in the folder, by its manifest; the greatest is the newest."""

    number: int
    step: int
    path: Path


def entries(folder: Path) -> list[Entry]:
    """The newest first. Raises OSError."""
    found = ((_MANIFEST.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((Entry(int(m[1]), int(m[2]), path) for m, path in found if m), reverse=True)


# --- writing ------------------------------------------------------------------------------------


def write(
    folder: Path,
    snapshot: Snapshot,
    where: Mapping[str, int],
    tell: Callable[[int], None] = lambda nbytes: None,
) -> Path:
    """Add a checkpoint; returns its manifest's path. Raises OSError, and what `tell` raises.

    `where`: what the manifest says of the job, its step at least. `tell` is called with the bytes
    that were written, as they are, and once more before the checkpoint counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = max((entry.number for entry in entries(folder)), default=0) + 1
    name = f"{number:06}-step-{where['step']}"
    tensors = folder / f"{name}-{secrets.token_hex(4)}.safetensors"
    manifest = folder / f"{name}.json"
    try:
        size, crc = _write_tensors(tensors, snapshot, tell)
        _sync(folder)
        tensors.stat()  # another member may have written a later one, and taken this away
        tell(0)
        about = {**where, "file": tensors.name, "bytes": size, "crc32": crc}
        atomic_file.write(manifest, _sealed(about, snapshot))
        _sync(folder)
    except BaseException:
        tensors.unlink(missing_ok=True)
        raise
    return manifest


def prune(folder: Path, keep: int) -> None:
    """Leave the newest ones, and of those no longer listed no file. Raises OSError.

    Tensors without a manifest are those of a write that was broken off, or that was overtaken.
    """
    listed = entries(folder)
    for entry in listed[keep:]:
        entry.path.unlink(missing_ok=True)
    kept = {entry.path.stem for entry in listed[:keep]}
    newest = listed[0].number if listed else 0
    for path in folder.iterdir():
        found = _TENSORS.fullmatch(path.name)
        if found and int(found[2]) <= newest and found[1] not in kept:
            path.unlink(missing_ok=True)


def _write_tensors(path: Path, snapshot: Snapshot, tell: Callable[[int], None]) -> tuple[int, int]:
    """Its size and checksum, when all of it is on the disk."""
    size = crc = synced = 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb", buffering=CHUNK) as file:
        for part in _parts(snapshot):
            crc = zlib.crc32(part, crc)
            size += len(part)
            file.write(part)
            tell(len(part))
            if size - synced >= SYNCED:  # or one wait at the end would be as long as the state
                file.flush()
                os.fsync(file.fileno())
                synced = size
        file.flush()
        os.fsync(file.fileno())
    return size, crc


def _parts(snapshot: Snapshot) -> Iterator[bytes | memoryview]:
    yield _header(snapshot.layout)
    for number in _order(snapshot.layout):
        rows = snapshot.tensors[number].detach().cpu().contiguous()
        memory = _bytes_of(rows)
        for start in range(0, len(memory), CHUNK):
            yield memory[start : start + CHUNK]


def _sync(folder: Path) -> None:
    """A name is durable once its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- reading ------------------------------------------------------------------------------------


def read(manifest: Path) -> Snapshot:
    """The state, checked. Raises StateError, which names the file and what is wrong with it."""
    about = _unsealed(manifest)
    try:
        layout = Layout.from_json(json.dumps(about["layout"]))
        tree = json.dumps(about["tree"]).encode()
        path, size, crc = manifest.with_name(about["file"]), about["bytes"], about["crc32"]
        os.fsencode(path)  # JSON can say half a surrogate pair, of which no name can be made
    except (KeyError, TypeError, ValueError, RecursionError, StateError) as error:
        raise StateError(f"{manifest} is damaged: {error!s:.500}") from None
    try:
        with path.open("rb", buffering=0) as file:
            found = os.fstat(file.fileno()).st_size
            if not size == found == len(_header(layout)) + sum(s.nbytes for s in layout.slots):
                raise StateError(f"{path} is damaged: it has {found} bytes, and had {size}")
            tensors, sum_found = _read_tensors(file, layout)
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from None
    if sum_found != crc:
        raise StateError(f"{path} is damaged: its checksum is {sum_found}, and was {crc}")
    return Snapshot(tree, tensors, layout)


def _read_tensors(file: BinaryIO, layout: Layout) -> tuple[list[Tensor], int]:
    """The tensors, by number, and the checksum of the whole file."""
    tensors: dict[int, Tensor] = {}
    crc = zlib.crc32(file.read(len(_header(layout))))
    for number in _order(layout):
        slot = layout.slots[number]
        rows = torch.empty(slot.shape, dtype=DTYPES[slot.dtype])
        memory = _bytes_of(rows)
        for start in range(0, len(memory), CHUNK):
            part = memory[start : start + CHUNK]
            if file.readinto(part) != len(part):  # type: ignore[attr-defined]
                raise OSError(0, "it ends too early")
            crc = zlib.crc32(part, crc)
        own = slot.empty(torch.device("cpu")).copy_(rows) if slot.stride else rows
        tensors[number] = own
    return [tensors[number] for number in range(len(tensors))], crc


# --- the formats --------------------------------------------------------------------------------


def _sealed(about: Mapping[str, object], snapshot: Snapshot) -> bytes:
    facts = json.dumps({"version": VERSION, **about}, separators=(",", ":")).encode()
    layout = snapshot.layout.to_json().encode()
    content = facts[:-1] + b',"layout":' + layout + b',"tree":' + snapshot.blob + b"}"
    return b'{"crc32":%d,"checkpoint":%b}\n' % (zlib.crc32(content), content)


def _unsealed(manifest: Path) -> dict[str, Any]:
    try:
        found = _SEALED.fullmatch(manifest.read_bytes())
    except OSError as error:
        raise StateError(f"{manifest} cannot be read: {error.strerror}") from None
    if found is None or zlib.crc32(found[2]) != int(found[1]):
        raise StateError(f"{manifest} is damaged: it is not what was written")
    try:
        about = json.loads(found[2])
        version = about["version"]
    except (ValueError, KeyError, RecursionError) as error:
        raise StateError(f"{manifest} is damaged: {error!s:.500}") from None
    if version != VERSION:
        raise StateError(
            f"{manifest} is of version {version!r:.100}, and this Midflight reads version "
            f"{VERSION}: use the Midflight that has written it"
        )
    return dict(about)


def _header(layout: Layout) -> bytes:
    """As the format wants it: eight bytes of length, then JSON, padded to a multiple of eight."""
    table: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for number in _order(layout):
        slot = layout.slots[number]
        start, end = end, end + slot.nbytes
        known = _NAMES.get(slot.dtype)
        table[_name(number, slot)] = {
            "dtype": known or "U8",
            "shape": slot.shape if known else (slot.nbytes,),
            "data_offsets": (start, end),
        }
    content = json.dumps(table, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    return len(content).to_bytes(8, "little") + content


def _order(layout: Layout) -> list[int]:
    """The wide elements first: then each lies at a multiple of its size."""
    return sorted(range(len(layout.slots)), key=lambda n: -DTYPES[layout.slots[n].dtype].itemsize)


def _name(number: int, slot: Slot) -> str:
    """A module's tensors have their names, others the number that the tree has for them."""
    return ".".join(slot.home) if slot.home else f"#{number}"


def _bytes_of(tensor: Tensor) -> memoryview:
    """A contiguous tensor's own memory, without numpy, which a training image need not have."""
    memory = memory_of(tensor)
    if not memory.numel():
        return memoryview(b"")
    array = (ctypes.c_ubyte * memory.numel()).from_address(memory.data_ptr())
    array.owner = memory  # type: ignore[attr-defined]  # it lives for as long as the view
    return memoryview(array).cast("B")
