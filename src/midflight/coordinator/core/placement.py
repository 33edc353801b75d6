"""Placing members on free slots: the one place where names are given out.

Members are named m0, m1, ... in the order in which they are started; no name is used twice.
"""

from collections.abc import Sequence

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
        draft.set(serial=draft.state.serial + 1)
        draft.put_member(member)
        names.append(name)
    if names:
        _start(draft, names, None if ranked else draft.state.world)
    return tuple(names)


def launch_again(draft: Draft, names: Sequence[str]) -> None:
    """Order once more what may never have reached the agent; if it has, that does no harm."""
    everyone = tuple(member.member for member in draft.state.members.values())
    _start(draft, names, draft.state.world or World(draft.state.generation, everyone))


def _start(draft: Draft, names: Sequence[str], world: World | None) -> None:
    known = world.members if world else ()
    new = tuple(
        draft.state.members[name].member for name in names if not world or name not in world
    )
    everyone = World(draft.state.generation, (*known, *new))
    for name in names:
        draft.set_member(name, born_rank=everyone.rank(name))
    draft.start(Start(tuple(names), everyone, draft.state.resets))
