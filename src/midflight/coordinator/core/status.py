"""The state as `midflight status` shows it."""

from midflight.coordinator.core.state import MemberState, State
from midflight.protocol.messages import HostStatus, MemberStatus, Status


def status(state: State, now: float) -> Status:
    ranks = {name: rank for rank, name in enumerate(state.world.names)} if state.world else {}
    members = sorted(
        state.members.values(), key=lambda m: (ranks.get(m.name, len(ranks)), m.born_at, m.name)
    )
    return Status(
        name=state.spec.name,
        phase=state.phase.value,
        detail=state.detail,
        generation=state.world.generation if state.world else 0,
        step=max((m.step for m in members), default=state.best_step),
        wanted=state.wanted,
        min_np=state.spec.min_np,
        max_np=state.spec.max_np,
        resets=state.resets,
        members=tuple(_member(m, ranks.get(m.name)) for m in members),
        hosts=tuple(
            HostStatus(h.name, h.slots, h.connected, max(0.0, h.cooling_until - now))
            for h in state.hosts.values()
        ),
    )


def _member(member: MemberState, rank: int | None) -> MemberStatus:
    state = member.stage.value
    if member.finished:
        state = "finished"
    elif member.joined and not member.connected:
        state = "silent"
    return MemberStatus(member.name, rank, member.host, member.pid, member.step, state)
