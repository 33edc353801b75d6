"""Member and World: who takes part in training, in which order, in which generation.

A member's name never changes and is never used twice. Rank, size and local rank follow from the
ordered list alone, so that every process that knows the world agrees on them.
"""

from dataclasses import dataclass


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

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def __contains__(self, name: object) -> bool:
        return any(member.name == name for member in self.members)

    def rank(self, name: str) -> int:
        """The rank of a member; raises ValueError if the world does not name it."""
        return self.names.index(name)

    def local_rank(self, name: str) -> int:
        """How many members on the same host stand before it in the world."""
        rank = self.rank(name)
        host = self.members[rank].host
        return sum(member.host == host for member in self.members[:rank])

    def local_size(self, name: str) -> int:
        host = self.members[self.rank(name)].host
        return sum(member.host == host for member in self.members)

    def host_rank(self, name: str) -> int:
        """The place of the member's host among the hosts, in order of first appearance."""
        hosts = list(dict.fromkeys(member.host for member in self.members))
        return hosts.index(self.members[self.rank(name)].host)
