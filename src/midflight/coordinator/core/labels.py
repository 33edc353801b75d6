"""How a member is called in what users read.

Midflight's own users know names such as `m5`, from `midflight status`; torchrun's and KungFu's know
ranks and hosts, and the dialect says so.
"""

from midflight.coordinator.core.state import Mode, State
from midflight.protocol.world import World


def rank(state: State, name: str) -> int | None:
    """The rank a member has now; before there is a world, the one it was born with."""
    member = state.members.get(name)
    if state.mode is Mode.UNKNOWN:
        return member.born_rank if member is not None else None
    world = _world_with(state, name)
    return world.rank(name) if world is not None else None


def label(state: State, name: str) -> str:
    """What to call a member."""
    return place(state, name) if state.spec.dialect.by_rank else name


def place(state: State, name: str) -> str:
    """The same, with its host in any case."""
    member, world = state.members.get(name), _world_with(state, name)
    if member is None and world is not None:  # one that was just lost
        host, number = world.members[world.rank(name)].host, world.rank(name)
    elif member is not None:
        host, number = member.host, world.rank(name) if world is not None else member.born_rank
    else:
        return "a lost worker" if state.spec.dialect.by_rank else name
    return f"rank {number} on {host}" if state.spec.dialect.by_rank else f"{name} on {host}"


def _world_with(state: State, name: str) -> World | None:
    for world in (state.forming.world if state.forming else None, state.world):
        if world is not None and name in world:
            return world
    return None
