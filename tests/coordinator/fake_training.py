"""What fake members do among themselves: meet in a world, hand the state over, step together.

They enter a world only when all of it have been told, connect a coming one only when all of it
prepare, and do a step only when all of the world take part in it. Whoever finds a peer gone breaks
off and says so.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from midflight.coordinator.core import events
from midflight.protocol.world import World
from tests.coordinator.fake_members import FakeMember, Health

if TYPE_CHECKING:
    from tests.coordinator.scenario import FakeCluster


class FakeTraining:
    def __init__(self, cluster: "FakeCluster") -> None:
        self._cluster = cluster
        self._promises = cluster.promises
        self._lost_keys: set[int] = set()  # of generations that can no longer be connected
        self.slow_to_enter: set[str] = set()  # members that receive the state, and are at it still

    def meet(self) -> None:
        """Let those who wait for each other find each other."""
        alive = [m for m in self._cluster.members.values() if m.comes_on]
        for member in alive:
            if member.forming is not None:
                self._enter_together(member.forming, lambda m, w: m.forming == w)
            for world in tuple(member.prepared.values()):
                self._connect_together(world)
            if member.switch is not None and self._at_switch(member):
                if member.name in member.switch.world:
                    self._enter_together(member.switch.world, self._comes_with)
                else:
                    member.leave()

    def lose_keys(self) -> None:
        """The coordinator that carried the keys is gone, and with it what was half connected."""
        for member in self._cluster.members.values():
            if member.forming is not None:
                self._lost_keys.add(member.forming.generation)
            self._lost_keys |= member.prepared.keys() - member.ready

    def _together(self, names: Iterable[str]) -> list[FakeMember] | None:
        members = [self._cluster.members[name] for name in names]
        here = all(m.comes_on and not self._cluster.agents[m.host].cut for m in members)
        return members if here else None

    def _enter_together(self, world: World, wants: Callable[[FakeMember, World], bool]) -> None:
        members = self._together(world.names)
        connected = members and all(world.generation in m.ready for m in members)
        if world.generation in self._lost_keys and not connected:
            return
        if members and all(wants(m, world) for m in members):
            step = max((m.step for m in members if m.holds_state), default=0)
            self._promises.entered(world, step, members)
            for member in members:
                if member.name not in self.slow_to_enter:
                    member.enter(world, step)

    def _comes_with(self, member: FakeMember, world: World) -> bool:
        told = member.switch is not None and member.switch.world == world
        return told and self._at_switch(member)

    def _at_switch(self, member: FakeMember) -> bool:
        assert member.switch is not None
        return not member.holds_state or member.step >= member.switch.step

    def _connect_together(self, world: World) -> None:
        members = self._together(world.names)
        number = world.generation
        if number in self._lost_keys:
            return
        if members and all(number in m.prepared for m in members):
            for member in members:
                if number not in member.ready:
                    member.ready.add(number)
                    member.tell(events.Ready, number, member.step, member.step)

    def train(self) -> None:
        """One step in each world whose members all take part."""
        generations = {m.generation for m in self._cluster.members.values() if m.generation}
        for world in [self._promises.worlds[g] for g in sorted(generations)]:
            members = [self._cluster.members[name] for name in world.names]
            mine = [m for m in members if m.generation == world.generation and not m.broken]
            at_work = [m for m in mine if m.comes_on and m.left_in is None and not m.finished]
            dead = any(m.health is Health.GONE or _broke_in(world, m) for m in members)
            if dead:
                for member in at_work:
                    member.break_off()
            elif len(at_work) == len(members) and all(self._can_step(m) for m in members):
                self._step(members)

    def _can_step(self, member: FakeMember) -> bool:
        due = member.switch is not None and self._at_switch(member)
        return not due and not self._cluster.agents[member.host].cut

    def _step(self, members: list[FakeMember]) -> None:
        for member in members:
            member.step += 1
            if member.step == self._cluster.last_step:
                member.finished = True
                member.tell(events.Finished, member.step)
        audible = any(self._cluster.is_audible(f"member {m.name}") for m in members)
        self._promises.stepped(members[0].step, audible)


def _broke_in(world: World, member: FakeMember) -> bool:
    """One that still receives the state has not entered: the others wait for it."""
    entering = member.forming is not None and member.forming.generation == world.generation
    return member.broken and not entering


def waits(member: FakeMember) -> bool:
    """Whether it is inside a collective, seen from outside between two steps."""
    at_work = bool(member.generation) and not member.finished and member.forming is None
    return member.comes_on and at_work
