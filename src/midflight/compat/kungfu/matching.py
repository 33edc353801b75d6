"""What has to be asked of the coordinator so that the members become the workers of a list. Pure.

The workers of a host are its slots: the first one listed is slot 0, and so on. A member whose slot
no worker has leaves. The coordinator puts newcomers wherever there is a free slot, so a host is
told with as many slots as it has workers. Only while those who leave are still there may it have
more, because newcomers are taken in first.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from midflight.compat.kungfu.cluster import FIRST_PORT, Address, Cluster
from midflight.protocol.messages import MemberStatus, ResizeRequested, Status
from midflight.run.hosts import Hosts

PATIENCE = 120.0  # seconds for a change, then it is taken back
_GOING = ("leaving", "finished")


@dataclass(frozen=True)
class Step:
    hosts: Hosts  # to be told
    request: ResizeRequested | None  # None: nothing has to be asked for


def next_step(workers: Sequence[Address], status: Status, slots: Mapping[str, int]) -> Step:
    """What to tell and to ask for, given the members of now and the slots they are in."""
    wanted = dict(Counter(worker.host for worker in workers))
    members = [member for member in status.members if member.state not in _GOING]
    surplus = tuple(
        member.name
        for member in members
        if member.rank is not None and slots[member.name] >= wanted.get(member.host, 0)
    )
    difference = len(workers) - status.wanted + len(surplus)
    if not surplus and not difference:
        return Step(wanted, None)
    add, remove = max(0, difference), max(0, -difference)
    request = ResizeRequested(None, add, remove, surplus, PATIENCE)
    return Step(_with_those_who_leave(wanted, members, slots), request)


def _with_those_who_leave(
    wanted: Hosts, members: Sequence[MemberStatus], slots: Mapping[str, int]
) -> Hosts:
    hosts = dict(wanted)
    for member in members:
        hosts[member.host] = max(hosts.get(member.host, 0), slots[member.name] + 1)
    return hosts


def as_it_is(cluster: Cluster, status: Status) -> Cluster:
    """The cluster with the workers that there are, whatever the store has asked for."""
    there = Counter(member.host for member in status.members if member.rank is not None)
    hosts = dict.fromkeys([*(runner.host for runner in cluster.runners), *there])
    workers = []
    for host in hosts:
        listed = [worker for worker in cluster.workers if worker.host == host][: there[host]]
        taken = {a.port for a in (*listed, *cluster.runners) if a.host == host}
        free = (port for port in range(FIRST_PORT, 65536) if port not in taken)
        workers += [*listed, *(Address(host, next(free)) for _ in range(there[host] - len(listed)))]
    return Cluster(cluster.runners, tuple(workers))
