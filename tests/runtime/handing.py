"""Real gloo groups between threads of this process, and a whole hand-over across one of them."""

import datetime
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from midflight.errors import StateError
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Snapshot, memory_of
from midflight.runtime.state.transfer import receive, receive_layout, send, send_layout
from midflight.runtime.state.tree import pack


def gloo(size: int = 2, seconds: float = 20) -> list[Any]:
    """The members of one group, by rank."""
    store, timeout = dist.HashStore(), datetime.timedelta(seconds=seconds)
    return together(
        *(
            lambda rank=rank: dist.ProcessGroupGloo(store, rank, size, timeout)
            for rank in range(size)
        )
    )


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Each in its own thread; their results, or the first error."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(call) for call in calls]]


def refused(call: Callable[[], Any]) -> str:
    """The message of the StateError that the call raises."""
    with pytest.raises(StateError) as caught:
        call()
    return str(caught.value)


def hand_over(
    groups: list[Any],
    giver: Holdings,
    taker: Holdings,
    *,
    extra: dict[str, Any] | None = None,
    prepare: bool = True,
) -> tuple[Snapshot, dict[str, Any]]:
    """From rank 0 to rank 1, into room made beforehand or on the spot."""

    def give() -> None:
        snapshot = giver.capture(extra or {})
        if prepare:
            send_layout(groups[0], 1, snapshot.layout)
        send(groups[0], 1, snapshot)

    def take() -> Snapshot:
        room = taker.prepare(receive_layout(groups[1], 0)) if prepare else None
        return receive(groups[1], 0, taker, room)

    _, received = together(give, take)
    return received, taker.restore(received)


def same_bits(one: object, other: object) -> bool:
    """Whether two trees are equal in structure, types and every bit of their tensors."""
    mine, theirs = pack(one), pack(other)
    return mine.blob == theirs.blob and all(
        (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(_bits(a), _bits(b))
        for a, b in zip(mine.tensors, theirs.tensors, strict=True)
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return memory_of(tensor.detach().contiguous())
