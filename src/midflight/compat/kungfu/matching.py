"""What has to be asked of the coordinator so that the members become the workers of a list. Pure.

A worker is an address, a member a process on a host. Each worker is matched with one member on
its host, and keeps it. Members without a worker leave, workers without a member are missing. The
coordinator puts newcomers wherever there is a free slot, so hosts are told with as many slots as
newcomers belong there, and with none where nobody is missing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midflight.compat.kungfu.cluster import Address
from midflight.protocol.messages import MemberStatus, ResizeRequested, Status
from midflight.run.hosts import Hosts

PATIENCE = 120.0  # seconds for a change, then it is taken back
_PRESENT = ("starting", "joined", "active", "silent")

Matches = Mapping[str, Address]  # a member's name to its worker


@dataclass(frozen=True)
class Step:
    matches: Matches
    hosts: Hosts  # to be told
    request: ResizeRequested | None  # None: nothing has to be asked for


def next_step(
    workers: Sequence[Address], status: Status, before: Matches, former: Sequence[Address] = ()
) -> Step:
    """What to tell and to ask for, given the members of now and the matches until now.

    `former` are the workers that were wanted before: who has come for one of those keeps it.
    """
    present = [member for member in status.members if member.state in _PRESENT]
    matches = _matched(workers, present, _matched(former, present, before) if former else before)
    surplus = tuple(m.name for m in present if m.name not in matches and m.rank is not None)
    kept = set(matches.values())
    missing = Counter(worker.host for worker in workers if worker not in kept)
    difference = len(workers) - status.wanted + len(surplus)
    request = None
    if surplus or difference:
        add, remove = max(0, difference), max(0, -difference)
        request = ResizeRequested(None, add, remove, surplus, PATIENCE)
    return Step(matches, _hosts(workers, status.members, missing), request)


def _matched(
    workers: Sequence[Address], members: Sequence[MemberStatus], before: Matches
) -> dict[str, Address]:
    open_workers = dict.fromkeys(workers)
    matches: dict[str, Address] = {}
    for member in members:
        worker = before.get(member.name)
        if worker is not None and worker in open_workers and worker.host == member.host:
            matches[member.name] = worker
            del open_workers[worker]
    for member in members:
        if member.name in matches:
            continue
        found = next((worker for worker in open_workers if worker.host == member.host), None)
        if found is not None:
            matches[member.name] = found
            del open_workers[found]
    return matches


def _hosts(
    workers: Sequence[Address], members: Sequence[MemberStatus], missing: Mapping[str, int]
) -> Hosts:
    there = Counter(member.host for member in members)
    names = dict.fromkeys([*(worker.host for worker in workers), *there])
    return {name: there[name] + missing[name] if missing.get(name) else 0 for name in names}
