"""Member and World: who takes part in training, in which order, in which generation.

A member's name never changes and is never used twice. Rank, size and local rank follow from the
ordered list alone, so that every process that knows the world agrees on them.
"""

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Member:
    name: str
    host: str  # the agent that runs it
    slot: int  # its place on that host; local device number
    address: str  # where the other members reach it


@dataclass(frozen=True)
class World:
    generation: int
    members: tuple[Member, ...]

    @property
    def size(self) -> int:
        return len(self.members)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {member.name: rank for rank, member in enumerate(self.members)}

    @cached_property
    def _hosts(self) -> dict[str, list[str]]:
        """The names on each host, hosts in order of first appearance."""
        hosts: dict[str, list[str]] = {}
        for member in self.members:
            hosts.setdefault(member.host, []).append(member.name)
        return hosts

    def __contains__(self, name: object) -> bool:
        return name in self._ranks

    def rank(self, name: str) -> int:
        """The rank of a member; raises KeyError if the world does not name it."""
        return self._ranks[name]

    @cached_property
    def _local_ranks(self) -> dict[str, int]:
        return {name: place for names in self._hosts.values() for place, name in enumerate(names)}

    def _host(self, name: str) -> str:
        return self.members[self._ranks[name]].host

    def local_rank(self, name: str) -> int:
        """How many members on the same host stand before it in the world."""
        return self._local_ranks[name]

    def local_size(self, name: str) -> int:
        return len(self._hosts[self._host(name)])

    def peers(self, name: str) -> list[str]:
        """The members of the same local rank, one on each host that has so many."""
        place = self._local_ranks[name]
        return [names[place] for names in self._hosts.values() if place < len(names)]

    @property
    def host_count(self) -> int:
        return len(self._hosts)

    def host_rank(self, name: str) -> int:
        """The place of the member's host among the hosts, in order of first appearance."""
        return list(self._hosts).index(self._host(name))


ALONE = World(1, (Member("m0", "localhost", 0, "127.0.0.1"),))  # plain `python train.py`
