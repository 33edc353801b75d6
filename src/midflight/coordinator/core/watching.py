"""Finding what nobody reports: silence, lost hosts, members that stand still.

A silent member's host is asked what its process is doing: stopped or gone means that it is out,
running means patience (user code may hold the interpreter for a while). A host that says nothing
for a whole lease is given up with all its members. A member that is alive but keeps all others
waiting for longer than the hang timeout is out, too.
"""

from dataclasses import replace

from midflight.coordinator.core.departing import KILLED, gone
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.events import Beating
from midflight.coordinator.core.forming import recover, survivors
from midflight.coordinator.core.state import (
    TRAINING,
    HostState,
    MemberState,
    Mode,
    Phase,
    Stage,
    State,
)

PROBE_AGAIN = 1.0  # seconds between two looks at a silent process
STUCK_SECONDS = 5.0  # how long a collective of a world that is over may take to fail
BREAK_SECONDS = 0.25  # how long the reason for a broken collective is waited for
OWN_PAUSE = 1.0  # a longer one between two ticks: it was this process that did not listen
GONE_SECONDS = 0.5  # the agent has reported the exit of a process long before that


def listen(draft: Draft, beats: dict[str, Beating], hosts_heard: frozenset[str]) -> None:
    """Write down who was heard since the last tick, and how far they are."""
    news = {name: beat for name, beat in beats.items() if _is_news(draft.state, name, beat)}
    _forgive_own_pause(draft)
    members = dict(draft.state.members)
    best = draft.state.best_step
    for name, beat in news.items():
        members[name] = _heard(members[name], beat)
        best = max(best, beat.step)
    hosts = dict(draft.state.hosts)
    for name in hosts_heard:
        if name in hosts:
            hosts[name] = replace(hosts[name], heard_at=draft.now)
    if best > draft.state.best_step:
        draft.set(best_step=best, stalls=0)
    draft.set(members=members, hosts=hosts)


def _is_news(state: State, name: str, beat: Beating) -> bool:
    """Beats wait for a tick; whatever else the member has said after one tells more."""
    return name in state.members and beat.heard_at >= state.members[name].heard_at


def _forgive_own_pause(draft: Draft) -> None:
    """A coordinator that was stopped for a while has heard nobody; that is not their silence."""
    state = draft.state
    pause = draft.now - state.ticked_at
    draft.set(ticked_at=draft.now)
    if state.ticked_at == 0.0 or pause <= OWN_PAUSE:
        return

    def later(moment: float) -> float:
        return min(draft.now, moment + pause)

    draft.set(
        hosts={n: replace(h, heard_at=later(h.heard_at)) for n, h in state.hosts.items()},
        members={
            n: replace(m, heard_at=later(m.heard_at), moved_at=later(m.moved_at))
            for n, m in state.members.items()
        },
    )


def _heard(member: MemberState, beat: Beating) -> MemberState:
    moved = beat.step != member.step or beat.waiting != member.waiting
    rate, stepped_at = member.rate, member.stepped_at
    # Before its first world a member makes no steps: one that it tells was handed to it.
    if member.holds_state and beat.step > member.step:
        if stepped_at is not None and (elapsed := beat.heard_at - stepped_at) > 0.05:
            lately = (beat.step - member.step) / elapsed
            rate = 2 / (1 / lately + 1 / (rate or lately))  # the mean of the steps' durations
        stepped_at = beat.heard_at
    return replace(
        member,
        step=beat.step,
        horizon=beat.horizon,
        waiting=beat.waiting,
        heard_at=beat.heard_at,
        moved_at=beat.heard_at if moved else member.moved_at,
        probed_at=None,
        rate=rate,
        stepped_at=stepped_at,
    )


def watch(draft: Draft) -> None:
    """Look for silence, lost hosts, hangs and unexplained breaks."""
    _lost_hosts(draft)
    if draft.state.mode is not Mode.ELASTIC:
        return
    _silent_members(draft)
    _late_leavers(draft)
    _hangs(draft)
    _stuck(draft)
    _unexplained_break(draft)


def _lost_hosts(draft: Draft) -> None:
    lease = draft.state.spec.lease
    hosts = draft.state.hosts.values()
    lost = {h.name for h in hosts if draft.now - h.heard_at > _patience(draft, h)}
    members = [m for m in draft.state.members.values() if m.host in lost]
    silent = [m for m in members if draft.now - m.heard_at > lease]
    quiet = ", ".join(dict.fromkeys(member.host for member in silent))
    names = [member.name for member in silent]
    gone(draft, names, KILLED, f"not a word from {quiet} for {lease:g} s", blameless=True)


def _patience(draft: Draft, host: HostState) -> float:
    """A coordinator that was restarted elsewhere is found by its hosts only after a while."""
    spec = draft.state.spec
    away = host.awaited and not host.unlisted
    return max(spec.lease, spec.come_back) if away else spec.lease


def _silent_members(draft: Draft) -> None:
    spec = draft.state.spec
    for member in tuple(draft.state.members.values()):
        if not member.joined or member.stage is Stage.STARTING:
            continue
        if member.stage is Stage.LEAVING and not member.connected:
            continue  # that is how they leave
        quiet = draft.now - member.heard_at
        host = draft.state.hosts.get(member.host)
        if quiet <= spec.silence or host is None or not host.connected:
            continue
        if not member.connected and quiet > spec.lease:
            reason = f"it did not come back within {spec.lease:g} s"
            gone(draft, [member.name], KILLED, reason)
        elif member.probed_at is None or draft.now - member.probed_at > PROBE_AGAIN:
            draft.set_member(member.name, probed_at=draft.now)
            draft.probe(member)


def watch_the_end(draft: Draft) -> None:
    """While members leave after training: nobody may hold up the end for ever."""
    _lost_hosts(draft)
    _late_leavers(draft)


def _late_leavers(draft: Draft) -> None:
    """Whoever was let go and does not end is ended."""
    grace = draft.state.spec.grace
    for member in tuple(draft.state.members.values()):
        if member.stage is Stage.LEAVING and draft.now - member.moved_at > grace:
            draft.stop(member)
            gone(draft, [member.name], KILLED, f"it did not end within {grace:g} s")


def probed(draft: Draft, name: str, state: str) -> None:
    """The host's answer about a silent member, or about one that it did not mention."""
    member = draft.state.members.get(name)
    if member is None or state == "running":
        return
    if member.probed_at is None and member.connected:
        return  # it has been heard again meanwhile
    if state == "stopped":
        draft.stop(member)
        gone(draft, [name], KILLED, "its process is stopped; it is ended")
    else:
        let_go = member.finished or member.stage is Stage.LEAVING
        if not let_go:  # its agent will say how it ended, once all its threads have
            draft.set(vanished=draft.state.vanished | {name})
        gone(draft, [name], 0 if let_go else KILLED, "its process is gone")


def _hangs(draft: Draft) -> None:
    """All but some wait in a collective, for too long: those that do not are stuck."""
    state = draft.state
    if state.phase not in TRAINING:
        return
    limit = state.spec.hang_timeout
    members = survivors(state)
    if not members or any(draft.now - m.moved_at <= limit for m in members):
        return
    idle = [m.name for m in members if not m.waiting]
    switching = state.phase is Phase.SWITCHING
    if not idle or (switching and (len(idle) == len(members) or _all_at_switch(state))):
        recover(draft, f"all members have waited for {limit:g} s", explained=False)
    elif len(idle) < len(members):
        gone(draft, idle, KILLED, f"no step for {limit:g} s, while the others wait for it")


def _stuck(draft: Draft) -> None:
    """A world is being formed, and some do not come out of a collective of the one before."""
    forming = draft.state.forming
    if forming is None:
        return
    began = forming.deadline - draft.state.spec.elastic_timeout
    names = [
        m.name
        for m in draft.state.named(forming.world)
        if m.waiting and draft.now - max(began, m.moved_at) > STUCK_SECONDS
    ]
    if names and len(names) < forming.world.size:
        gone(draft, names, KILLED, "a collective of the last world never ended there")


def _all_at_switch(state: State) -> bool:
    """Whether all have come to the step of the switch; if they have, they wait for each other."""
    assert state.change is not None
    return all(member.step >= state.change.step for member in state.named(state.world))


def broke(draft: Draft, generation: int, reason: str) -> None:
    """A collective failed somewhere. Usually the reason is known within milliseconds."""
    if draft.state.suspicion is None and generation in _at_work(draft.state):
        draft.set(suspicion=draft.now + BREAK_SECONDS, detail=reason)


def _at_work(state: State) -> list[int]:
    """The generations in which members may be at work now."""
    if state.forming is not None:
        return [state.forming.world.generation]
    if state.world is None or state.phase not in TRAINING:
        return []
    coming = state.change.world if state.change and state.phase is Phase.SWITCHING else None
    return [world.generation for world in (state.world, coming) if world is not None]


def _unexplained_break(draft: Draft) -> None:
    """A collective broke, and nobody turned out to be missing: form the world anew."""
    state = draft.state
    if state.suspicion is None or draft.now < state.suspicion:
        return
    oldest = draft.now - state.spec.silence
    if all(member.connected and member.heard_at >= oldest for member in survivors(state)):
        draft.say("a collective broke and nobody is missing: forming the world anew", "warning")
        recover(draft, state.detail or "a collective broke", explained=False)
