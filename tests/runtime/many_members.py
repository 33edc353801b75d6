"""Members of one world that are processes: forked, so that many fit, with real gloo between them.

They connect, add up, lose one of them, and do the same again without it. A thread each would not
do: a group takes the sockets that appear in its process while it is built for its own. Keys go
through one of torch's stores, as there is no coordinator. `midflight` is loaded before the fork.
"""

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing import connection, get_context
from typing import Any

import torch
import torch.distributed as dist

from midflight import prctl
from midflight.errors import WorldChanged
from midflight.protocol.world import World
from midflight.runtime.group import reduction
from midflight.runtime.group.process_group import Group
from tests.runtime.keys import world

SECONDS = 100.0
STUCK_SECONDS = 5.0
Line = connection.Connection


class Keys:
    """What the coordinator would keep of all generations."""

    def __init__(self, port: int) -> None:
        patience = timedelta(seconds=SECONDS)
        self._store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=patience)

    def set_key(self, generation: int, key: str, value: str) -> None:
        self._store.set(f"{generation}/{key}", value)

    def add_key(self, generation: int, key: str, amount: int) -> int:
        raise NotImplementedError

    def want_keys(self, generation: int, keys: Sequence[str], timeout: float) -> Sequence[str]:
        return [self._store.get(f"{generation}/{key}").decode() for key in keys]

    def want_rank_keys(
        self, generation: int, prefix: str, size: int, timeout: float
    ) -> Sequence[str]:
        return self.want_keys(generation, [f"{prefix}{n}" for n in range(size)], timeout)


def count_descriptors() -> int:
    return len(os.listdir("/dev/fd")) - 1


def meet(group: Group, keys: Keys, rank: int) -> tuple[float, int]:
    """The sum of all members' ranks in the first world, and the descriptors that this one costs."""
    before = count_descriptors()
    group.connect(keys)
    total = reduction.all_reduce(group, torch.tensor(float(rank)), "sum")
    return float(total), count_descriptors() - before


def be_a_member(rank: int, size: int, line: Line) -> None:
    prctl.die_with_parent()
    torch.set_num_threads(1)
    keys = Keys(line.recv())
    before = count_descriptors()
    group = Group(world(size), f"m{rank}", "gloo")
    line.send(meet(group, keys, rank))
    coming: list[World] = []

    def hear() -> None:
        coming.append(line.recv())
        group.cut()

    told = threading.Thread(target=hear)
    told.start()
    try:
        reduction.all_reduce(group, torch.ones(1), "sum")  # one is dead, and all wait
    except WorldChanged:
        told.join()
    stuck = is_stuck(group)
    group.close()
    (following,) = coming
    group = Group(following, f"m{rank}", "gloo")
    line.send(meet(group, keys, rank))
    line.recv()  # all are through
    group.cut()
    group.close()
    gc.collect()
    line.send((count_descriptors() - before, stuck))


def is_stuck(group: Group) -> bool:
    """Whether gloo has lost the operation that was cut; what it has lost is kept for ever."""
    deadline = time.monotonic() + STUCK_SECONDS
    while group.waits.stuck and time.monotonic() < deadline:
        time.sleep(0.01)
    return group.waits.stuck


def main(size: int) -> None:
    """Prints, as JSON, what each member says of both worlds, and how much it leaves open."""
    fork = get_context("fork")
    lines, members = [], []
    for rank in range(size):
        ours, theirs = fork.Pipe()
        members.append(fork.Process(target=be_a_member, args=[rank, size, theirs], daemon=True))
        members[-1].start()
        theirs.close()
        lines.append(ours)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first = exchange(lines, store.port)
    lost = size // 2
    members[lost].kill()
    lines.pop(lost).close()
    others = tuple(m for m in world(size).members if m.name != f"m{lost}")
    second = exchange(lines, World(4, others))
    left = exchange(lines, "all are through")
    print(json.dumps({"first": first, "second": second, "left": left}))
    for member in members:
        member.join(SECONDS)


def exchange(lines: Sequence[Line], word: object) -> list[Any]:
    """Say it to all of them, and hear what each says then."""
    for line in lines:
        line.send(word)
    return [line.recv() for line in lines]


if __name__ == "__main__":
    main(int(sys.argv[1]))
