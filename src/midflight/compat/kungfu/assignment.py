"""What has to be asked of the coordinator so that the members become the workers of a list. Pure.

A worker is known by its address and port. The members of a host are given the addresses of its
workers, in their order, and each keeps its own as long as it lives. A member whose address is not
listed leaves. The coordinator puts newcomers wherever there is a free slot, so a host is told with
no more slots than it needs: for those who are there, until they have left, and for its newcomers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from midflight.compat.kungfu.cluster import FIRST_PORT, Address, Cluster
from midflight.protocol.messages import MemberStatus, ResizeRequested, Status

if TYPE_CHECKING:
    from midflight.run.hosts import Hosts

PATIENCE = 120.0  # seconds for a change, then it is taken back
_GOING = ("leaving", "finished")


@dataclass(frozen=True)
class Step:
    hosts: "Hosts"  # to be told
    request: ResizeRequested | None  # None: nothing has to be asked for


def assign(
    workers: Sequence[Address], status: Status, before: Mapping[str, Address]
) -> dict[str, Address]:
    """The address of each member; without one, it is on a host that lists no worker for it."""
    members = _staying(status)
    found = {member.name: before[member.name] for member in members if member.name in before}
    taken = set(found.values())
    for member in members:
        free = (w for w in workers if w.host == member.host and w not in taken)
        if member.name not in found and (address := next(free, None)) is not None:
            found[member.name] = address
            taken.add(address)
    return found


def next_step(workers: Sequence[Address], status: Status, addresses: Mapping[str, Address]) -> Step:
    """What to tell and to ask for, given the members of now and their addresses."""
    members = _staying(status)
    surplus = tuple(
        member.name
        for member in members
        if member.rank is not None and addresses.get(member.name) not in workers
    )
    new = [worker for worker in workers if worker not in addresses.values()]
    hosts = dict(Counter([*(m.host for m in members), *(w.host for w in new)]))
    difference = len(workers) - status.wanted + len(surplus)
    if not surplus and not difference:
        return Step(hosts, None)
    add, remove = max(0, difference), max(0, -difference)
    return Step(hosts, ResizeRequested(None, add, remove, surplus, PATIENCE))


def _staying(status: Status) -> list[MemberStatus]:
    return [member for member in status.members if member.state not in _GOING]


def as_it_is(cluster: Cluster, status: Status, addresses: Mapping[str, Address]) -> Cluster:
    """The cluster with the workers that there are, whatever the store has asked for."""
    workers: list[Address] = []
    for member in status.members:
        if member.rank is not None:
            taken = {*workers, *cluster.runners, *addresses.values()}
            ports = (Address(member.host, port) for port in range(FIRST_PORT, 65536))
            free = (address for address in ports if address not in taken)
            workers.append(addresses.get(member.name) or next(free))
    order = {worker: place for place, worker in enumerate(cluster.workers)}
    workers.sort(key=lambda worker: order.get(worker, len(order)))
    return Cluster(cluster.runners, tuple(workers))
