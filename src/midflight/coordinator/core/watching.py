"""Finding what nobody reports: silence, lost hosts, members that stand still.

A silent member's host is asked what its process is doing: stopped or gone means that it is out,
running means patience (user code may hold the interpreter for a while). A host that says nothing
for a whole lease is given up with all its members. A member that is alive but keeps all others
waiting for longer than the hang timeout is out, too.
"""

from dataclasses import replace

from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.events import Beating
from midflight.coordinator.core.forming import lose, recover
from midflight.coordinator.core.state import MemberState, Mode, Phase, Stage

PROBE_AGAIN = 1.0  # seconds between two looks at a silent process
GONE_SECONDS = 0.5  # the agent has reported the exit of a process long before that


def listen(draft: Draft, beats: dict[str, Beating], hosts_heard: frozenset[str]) -> None:
    """Write down who was heard since the last tick, and how far they are."""
    members = dict(draft.state.members)
    best = draft.state.best_step
    for name, beat in beats.items():
        if name in members:
            members[name] = _heard(members[name], beat)
            best = max(best, beat.step)
    hosts = dict(draft.state.hosts)
    for name in hosts_heard:
        if name in hosts:
            hosts[name] = replace(hosts[name], heard_at=draft.now)
    if best > draft.state.best_step:
        draft.set(best_step=best, stalls=0)
    draft.set(members=members, hosts=hosts)


def _heard(member: MemberState, beat: Beating) -> MemberState:
    moved = beat.step != member.step or beat.waiting != member.waiting
    elapsed = beat.heard_at - member.heard_at
    rate = member.rate
    if beat.step >= member.step and elapsed > 0.05:
        rate = 0.5 * rate + 0.5 * (beat.step - member.step) / elapsed
    return replace(
        member,
        step=beat.step,
        horizon=beat.horizon,
        waiting=beat.waiting,
        heard_at=beat.heard_at,
        moved_at=beat.heard_at if moved else member.moved_at,
        probed_at=None,
        rate=rate,
    )


def watch(draft: Draft) -> None:
    """Look for silence, lost hosts, hangs and unexplained breaks."""
    _lost_hosts(draft)
    if draft.state.mode is not Mode.ELASTIC:
        return
    _silent_members(draft)
    _hangs(draft)
    _unexplained_break(draft)


def _lost_hosts(draft: Draft) -> None:
    lease = draft.state.spec.lease
    for host in tuple(draft.state.hosts.values()):
        if draft.now - host.heard_at <= lease:
            continue
        members = [m for m in draft.state.members.values() if m.host == host.name]
        silent = [m.name for m in members if draft.now - m.heard_at > lease]
        if host.connected:
            draft.set_host(host.name, connected=False)
        if silent:
            lose(draft, silent, f"host {host.name} has said nothing for {lease:g} s")


def _silent_members(draft: Draft) -> None:
    spec = draft.state.spec
    for member in tuple(draft.state.members.values()):
        if not member.joined or member.stage is Stage.STARTING:
            continue
        quiet = draft.now - member.heard_at
        host = draft.state.hosts.get(member.host)
        if quiet <= spec.silence or host is None or not host.connected:
            continue
        if not member.connected and quiet > spec.lease:
            lose(draft, [member.name], f"it did not come back within {spec.lease:g} s")
        elif member.probed_at is None or draft.now - member.probed_at > PROBE_AGAIN:
            draft.set_member(member.name, probed_at=draft.now)
            draft.probe(member)


def probed(draft: Draft, name: str, state: str) -> None:
    """The host's answer about a silent member."""
    member = draft.state.members.get(name)
    if member is None or state == "running":
        return
    if member.probed_at is None and member.connected:
        return  # it has been heard again meanwhile
    if state == "stopped":
        lose(draft, [name], "its process is stopped; it is ended")
    elif member.stage is not Stage.LEAVING and draft.now - member.heard_at > GONE_SECONDS:
        lose(draft, [name], "its process is gone")


def _hangs(draft: Draft) -> None:
    """All but some wait in a collective, for too long: those that do not are stuck."""
    state = draft.state
    if state.phase not in (Phase.STABLE, Phase.PREPARING, Phase.SWITCHING):
        return
    members = state.named(state.world)
    limit = state.spec.hang_timeout
    idle = [m for m in members if not m.waiting and draft.now - m.moved_at > limit]
    waiting = [m for m in members if m.waiting and draft.now - m.moved_at > limit]
    if waiting and idle and len(waiting) + len(idle) == len(members):
        names = [m.name for m in idle]
        lose(draft, names, f"no step for {limit:g} s, while the others wait for it")


def _unexplained_break(draft: Draft) -> None:
    """A collective broke, and nobody turned out to be missing: form the world anew."""
    suspicion = draft.state.suspicion
    if suspicion is not None and draft.now >= suspicion:
        draft.say("a collective broke and nobody is missing: forming the world anew", "warning")
        recover(draft, draft.state.detail or "a collective broke")
