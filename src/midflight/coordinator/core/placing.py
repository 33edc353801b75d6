"""Placing members on free slots: the one place where names are given out.

Members are named m0, m1, ... in the order in which they are started; no name is used twice.
"""

from midflight.coordinator.core import hosts
from midflight.coordinator.core.commands import Start
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.state import MemberState
from midflight.protocol.world import World


def launch(draft: Draft, count: int, *, ranked: bool = False) -> tuple[str, ...]:
    """Start up to `count` members on free slots; returns their names.

    `ranked` gives them ranks among themselves (scripts without Midflight need them at birth).
    """
    names = []
    for host, slot in hosts.free_slots(draft.state, draft.now)[:count]:
        name = f"m{draft.state.serial}"
        member = MemberState(
            name=name,
            host=host,
            slot=slot,
            address=draft.state.hosts[host].address,
            born_at=draft.now,
            heard_at=draft.now,
        )
        draft.set(serial=draft.state.serial + 1, members={**draft.state.members, name: member})
        names.append(name)
    if names:
        everyone = names if ranked else [*_names(draft.state.world), *names]
        world = World(
            draft.state.generation, tuple(draft.state.members[name].member for name in everyone)
        )
        draft.start(Start(tuple(names), world, draft.state.resets))
    return tuple(names)


def _names(world: World | None) -> tuple[str, ...]:
    return world.names if world else ()
