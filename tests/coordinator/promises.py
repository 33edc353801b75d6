"""What must hold in every run, checked by the fake cluster at every announcement."""

from typing import TYPE_CHECKING, Any

from midflight.protocol import messages as say
from midflight.protocol.world import World

if TYPE_CHECKING:
    from tests.coordinator.scenario import FakeCluster


class Promises:
    def __init__(self, cluster: "FakeCluster") -> None:
        self._cluster = cluster
        self.worlds: dict[int, World] = {}  # every world that was ever announced
        self.done = 0  # steps that a whole world has completed
        self.heard_of = 0  # and those of them that the coordinator can have heard of
        self.asked = 0  # requests, numbered from 1
        self.forgotten: set[int] = set()  # those whose client lost the coordinator
        self._answered: set[int] = set()

    def announced(self, message: object) -> None:
        match message:
            case say.Form(world):
                self._world_announced(world)
                assert self._cluster.state.generation == world.generation
            case say.Prepare(world, joiners) | say.Switch(world, joiners, _):
                self._world_announced(world)
                assert set(joiners) <= set(world.names)
                self._has_old_member(world, joiners)
            case _:
                pass

    def _world_announced(self, world: World) -> None:
        known = self.worlds.setdefault(world.generation, world)
        assert known == world, "one generation, one world"
        assert world.generation == max(self.worlds), "generations only grow"
        assert len(set(world.names)) == world.size, "nobody is in a world twice"
        assert set(world.names) <= set(self._cluster.state.members), "everybody is known"
        assert world.size >= self._cluster.state.spec.min_np
        self._is_not_too_large(world)
        members = [self._cluster.members[name] for name in world.names]
        if self.begun:
            assert any(m.holds_state for m in members), "the state lives on"

    @property
    def begun(self) -> bool:
        """Whether the coordinator has heard of a step, so that there is a state to be kept."""
        return self._cluster.state.best_step > 0

    def _has_old_member(self, world: World, joiners: tuple[str, ...]) -> None:
        assert set(world.names) - set(joiners), "newcomers alone hold no state"

    def _is_not_too_large(self, world: World) -> None:
        """More than the maximum only while all old members are being replaced."""
        change = self._cluster.state.change
        requests = [*self._cluster.state.queue, *([change.request] if change is not None else [])]
        leaving = {name for request in requests for name in request.names}
        extra = [name for name in world.names if name in leaving]
        assert world.size - len(extra) <= self._cluster.state.spec.max_np

    def entered(self, world: World, step: int, members: list[Any]) -> None:
        """A world's members have agreed on a state."""
        if self.begun:
            assert self.heard_of <= step <= self.done, "no step is lost, none is done twice"
        self.done = self.heard_of = step

    def stepped(self, step: int, audible: bool) -> None:
        """A whole world has done a step; nobody heard of it if all of its members are cut off."""
        assert step == self.done + 1, "steps follow each other"
        self.done = step
        if audible:
            self.heard_of = step

    def answered(self, ticket: int) -> None:
        assert ticket not in self._answered, "a request is answered once"
        self._answered.add(ticket)

    def restarted(self) -> None:
        """Clients of the former coordinator have lost their line, and are not answered."""
        self.forgotten |= set(range(1, self.asked + 1)) - self._answered

    def failed(self, reason: str) -> None:
        if "holds the training state" in reason:
            known = self._cluster.state.members
            left = [
                m.name
                for m in self._cluster.members.values()
                if m.beats and m.holds_state and m.step == self.done
                if m.name in known and not known[m.name].outdated
            ]
            assert not left, "nobody who holds the newest state was given up"
