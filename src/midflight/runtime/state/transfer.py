"""Hands a snapshot from one member to another: what is sent, in which order.

The receiver says which layout it has made room for. The giver answers with a header and, only if
its snapshot is laid out otherwise, with the layout, for which the receiver then makes room on the
spot. Then follow the JSON and the tensors: large ones from memory to memory without a copy, small
ones in bundles, because a message costs about as much as copying a quarter of a megabyte twice.
The layout can also be sent ahead, from a thread; those messages never mix with a transfer.
Neither side may change the state meanwhile. A transfer that breaks off raises what the group
raises, and leaves what was received in place torn.
"""

import struct

import torch
from torch import Tensor

from midflight.errors import StateError
from midflight.runtime.state.channel import (
    MESSAGE,
    Channel,
    Group,
    bytes_to_tensor,
    carried,
    tensor_to_bytes,
    warm,
)
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout, Prepared, Snapshot, is_dense, memory_of

LARGE = 256 << 10  # bytes; a tensor of this size or more is a message of its own
BUNDLE = 4 << 20
LIMIT = 1 << 30  # for JSON; a state with more outside of its tensors is a mistake
LAYOUT_TAG, TRANSFER_TAG = 1 << 16, 1 << 17  # each with room for all the messages it may take
HELLO = struct.Struct(">8s32s")  # magic, fingerprint of the prepared layout or zeros
HEADER = struct.Struct(">8sQQ32s")  # magic, size of the JSON, of the layout or 0, its fingerprint
MAGIC = b"midfl-01"


def send(group: Group, target: int, snapshot: Snapshot) -> None:
    """Give the state to the member of that rank, which calls `receive`."""
    fingerprint = bytes.fromhex(snapshot.layout.fingerprint)
    magic, prepared = HELLO.unpack(Channel(group, target, "recv", TRANSFER_TAG).take(HELLO.size))
    _check_version(magic, target)
    layout = b"" if prepared == fingerprint else snapshot.layout.to_json().encode()
    channel = Channel(group, target, "send", TRANSFER_TAG)
    header = HEADER.pack(MAGIC, len(snapshot.blob), len(layout), fingerprint)
    channel.add(bytes_to_tensor(header))
    if max(len(snapshot.blob), len(layout)) > LIMIT:
        channel.finish()  # so that the receiver sees it too
    _check_size(len(snapshot.blob), len(layout))
    channel.add(bytes_to_tensor(layout))
    channel.push()
    channel.add(bytes_to_tensor(snapshot.blob))
    _add_tensors(channel, snapshot.tensors, snapshot.layout)
    channel.finish()


def receive(
    group: Group,
    source: int,
    holdings: Holdings,
    prepared: Prepared | None = None,
    *,
    in_place: bool = True,
) -> Snapshot:
    """Get the state from the member of that rank; it can be sent on, and be restored.

    `in_place` is for the case that nothing fitting was prepared; see `Holdings.prepare`.
    """
    known = bytes.fromhex(prepared.layout.fingerprint) if prepared else bytes(32)
    hello = Channel(group, source, "send", TRANSFER_TAG)
    hello.add(bytes_to_tensor(HELLO.pack(MAGIC, known)))
    hello.push()
    channel = Channel(group, source, "recv", TRANSFER_TAG)
    magic, blob_size, layout_size, fingerprint = HEADER.unpack(channel.take(HEADER.size))
    hello.finish()
    _check_version(magic, source)
    _check_size(blob_size, layout_size)
    layout = channel.take(layout_size)
    if prepared is None or fingerprint != known:
        prepared = holdings.prepare(Layout.from_json(layout), in_place=in_place, spare=prepared)
    blob = torch.empty(blob_size, dtype=torch.uint8)
    channel.add(blob)
    _add_tensors(channel, prepared.tensors, prepared.layout)
    channel.finish()
    return Snapshot(tensor_to_bytes(blob), prepared.tensors, prepared.layout)


def send_layout(group: Group, target: int, layout: Layout) -> None:
    """Tell the member of that rank what to prepare for; it calls `receive_layout`."""
    content = layout.to_json().encode()
    channel = Channel(group, target, "send", LAYOUT_TAG)
    header = HEADER.pack(MAGIC, 0, len(content), bytes.fromhex(layout.fingerprint))
    for part in (header, content):
        channel.add(bytes_to_tensor(part))
        channel.finish()
        _check_size(0, len(content))
    warm(group, staged_sizes(group, layout))


def receive_layout(group: Group, source: int) -> Layout:
    """What to prepare for."""
    channel = Channel(group, source, "recv", LAYOUT_TAG)
    magic, _, size, _ = HEADER.unpack(channel.take(HEADER.size))
    _check_version(magic, source)
    _check_size(0, size)
    layout = Layout.from_json(channel.take(size))
    warm(group, staged_sizes(group, layout))
    return layout


def staged_sizes(group: Group, layout: Layout) -> list[int]:
    """The sizes of the messages that pass through stages when a state of that layout is moved."""
    kinds = carried(group)
    large, bundles = _sorted(layout)
    slots = layout.slots
    sizes = [
        min(size, MESSAGE)
        for size in (slots[number].nbytes for number in large if slots[number].device not in kinds)
        for _ in range(-(-size // MESSAGE))
    ]
    return sizes + [sum(slots[number].nbytes for number in bundle) for bundle in bundles]


def _add_tensors(channel: Channel, tensors: list[Tensor], layout: Layout) -> None:
    """Large ones first: they are on their way while the small ones are gathered."""
    large, bundles = _sorted(layout)
    for number in large:
        channel.add(memory_of(_dense(tensors[number])))
    for numbers in bundles:
        channel.add_together([tensors[number] for number in numbers])


def _sorted(layout: Layout) -> tuple[list[int], list[list[int]]]:
    """Which tensors go on their own, and which go together; the same on both sides."""
    large: list[int] = []
    bundles: list[list[int]] = []
    filling: dict[tuple[str, str], tuple[list[int], int]] = {}  # by kind of device and of number
    for number, slot in enumerate(layout.slots):
        size = slot.nbytes
        if size >= LARGE:
            large.append(number)
        elif size:
            kind = (slot.device, slot.dtype)
            bundle, filled = filling.get(kind, ([], 0))
            if filled + size > BUNDLE or not bundle:
                bundle, filled = [], 0
                bundles.append(bundle)
            bundle.append(number)
            filling[kind] = (bundle, filled + size)
    return large, bundles


def _dense(tensor: Tensor) -> Tensor:
    return tensor if is_dense(tensor) else tensor.detach().contiguous()


def _check_version(magic: bytes, peer: int) -> None:
    if magic != MAGIC:
        raise StateError(
            f"wanted a transfer of the kind {MAGIC!r} from rank {peer}, and {magic!r} came; "
            "run the same version of Midflight on all members"
        )


def _check_size(blob: int, layout: int) -> None:
    """Made by both sides, after the header: neither is left waiting for the other."""
    if blob > LIMIT or layout > LIMIT:
        raise StateError(too_large(max(blob, layout)))


def too_large(size: int) -> str:
    return (
        f"the state has {size} bytes outside of its tensors, and at most {LIMIT} "
        "can be handed to a newcomer; keep large data in tensors or numpy arrays"
    )
