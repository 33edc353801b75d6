"""Process sets of one world: which ranks they have, and a group for each that this member is in."""

from collections.abc import Sequence

from midflight.compat.horovod.engine.requests import GLOBAL_SET
from midflight.protocol.world import World
from midflight.runtime.group.keystore import KeyLine
from midflight.runtime.group.process_group import Group


class Sets:
    def __init__(self, group: Group, line: KeyLine | None) -> None:
        """`line` carries the keys by which the groups of the sets are connected."""
        self._all = group
        self._line = line
        self.ranks: dict[int, tuple[int, ...]] = {GLOBAL_SET: tuple(range(group.size))}
        self._groups: dict[int, Group | None] = {GLOBAL_SET: group}

    def add(self, number: int, ranks: Sequence[int]) -> None:
        """Called by the members of all ranks at the same moment."""
        self.ranks[number] = tuple(ranks)
        if self._all.rank not in ranks:
            self._groups[number] = None
            return
        world = self._all.world
        chosen = World(world.generation, tuple(world.members[rank] for rank in ranks))
        own = world.members[self._all.rank].name
        group = Group(chosen, own, self._all.backend, scope=f"set-{number}")
        self._all.on_cut.append(group.cut)
        if group.size > 1 and self._line is not None:
            line = self._line  # a cut does not always get gloo out of connecting
            self._all.waits.call(lambda: group.connect(line))
        self._groups[number] = group

    def remove(self, number: int) -> None:
        self.ranks.pop(number, None)
        group = self._groups.pop(number, None)
        if group is not None:
            self._all.on_cut.remove(group.cut)
            group.retire()

    def group(self, number: int) -> Group | None:
        """None: this member is not in it, or there is no such set."""
        return self._groups.get(number)

    def rank_in(self, number: int, rank: int) -> int:
        """A rank of the world as a rank of the set; -1 if it is not in it."""
        ranks = self.ranks.get(number, ())
        return ranks.index(rank) if rank in ranks else -1

    def close(self) -> None:
        for number, group in self._groups.items():
            if number != GLOBAL_SET and group is not None:
                group.retire()
