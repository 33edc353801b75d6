"""Finding what nobody reports: silence, lost hosts, members that stand still.

Whoever hears nothing from one peer suspects the peer; whoever hears nothing from anybody suspects
itself. A silent member's host is asked what its process is doing: gone means that it is out,
stopped too if others hold the training state, running means patience (user code may hold the
interpreter for a while). A host whose agent and members are silent, or have hung up, has a lease in
which to come back. The lease does not run while the coordinator itself was paused or cut off, and
the last members that hold the state are waited for until the elastic timeout. A member that is
alive but keeps all others waiting for longer than the hang timeout is out, too.
"""

from dataclasses import replace

from midflight.coordinator.core import leavers
from midflight.coordinator.core.departures import KILLED, found_gone, gone
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.events import Beating
from midflight.coordinator.core.formation import left_behind, recover, survivors
from midflight.coordinator.core.state import (
    OVER,
    TRAINING,
    HostState,
    MemberState,
    Mode,
    Phase,
    Stage,
    State,
)

PROBE_AGAIN = 1.0  # seconds between two looks at a silent process
STUCK_SECONDS = 5.0  # how long a collective of a world that is over may take to fail,
STUCK_STEPS = 2.0  # beside so many steps: a backward pass goes on to its next collective
FIRST_STEP = 60.0  # the same, while nobody knows how long a step takes: it may be compiled
BREAK_SECONDS = 0.25  # how long the reason for a broken collective is waited for
OWN_PAUSE = 1.0  # a longer one between two ticks: it was this process that did not listen


def listen(draft: Draft, beats: dict[str, Beating], hosts_heard: frozenset[str]) -> None:
    """Write down who was heard since the last tick, and how far they are."""
    news = {name: beat for name, beat in beats.items() if _is_news(draft.state, name, beat)}
    members = dict(draft.state.members)
    best = draft.state.best_step
    moving = any(beat.moved != members[name].moved for name, beat in news.items())
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
    if moving:
        _extend_forming(draft)
    _excuse_silence_of_all(draft)
    draft.set(ticked_at=draft.now)


def _is_news(state: State, name: str, beat: Beating) -> bool:
    """Beats wait for a tick; whatever else the member has said after one tells more."""
    return name in state.members and beat.heard_at >= state.members[name].heard_at


def excuse_own_pause(draft: Draft) -> None:
    """A coordinator that stood still for a while has heard nobody; that is not their silence.

    Everybody who hung up on it meanwhile has a lease, from now on, in which to come back.
    """
    state = draft.state
    pause = draft.now - state.ticked_at
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
    _stop_clocks(draft, pause)


def _extend_forming(draft: Draft) -> None:
    """State is on its way to somebody; how long that takes depends on how much it is."""
    if (forming := draft.state.forming) is not None:
        deadline = draft.now + draft.state.spec.elastic_timeout
        draft.set(forming=replace(forming, deadline=deadline))


def _excuse_silence_of_all(draft: Draft) -> None:
    """Not a word from anybody: the coordinator is cut off, and waits until somebody is heard."""
    state = draft.state
    if not state.members:
        return
    heard = [host.heard_at for host in state.hosts.values()]
    heard += [member.heard_at for member in state.members.values()]
    silence = draft.now - max(heard)
    if OWN_PAUSE < silence <= state.spec.elastic_timeout:
        _stop_clocks(draft, draft.now - state.ticked_at)


def _stop_clocks(draft: Draft, seconds: float) -> None:
    """These seconds count against nobody."""
    state, forming = draft.state, draft.state.forming

    def later(moment: float | None) -> float | None:
        return None if moment is None else moment + seconds

    if forming is not None:
        forming = replace(
            forming, began_at=forming.began_at + seconds, deadline=forming.deadline + seconds
        )
    draft.set(
        forming=forming,
        started_at=state.started_at + seconds,
        launched_at=later(state.launched_at),
        enough_since=later(state.enough_since),
        waiting_since=later(state.waiting_since),
        lenient_until=draft.now + state.spec.lease,
        ticked_at=draft.now,
    )


def _heard(member: MemberState, beat: Beating) -> MemberState:
    before = (member.step, member.waiting, member.moved)
    moved = (beat.step, beat.waiting, beat.moved) != before
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
        moved=beat.moved,
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
    leavers.watch(draft)
    _hangs(draft)
    _stuck(draft)
    _unexplained_break(draft)


def host_hung_up(draft: Draft, name: str, *, dead: bool) -> None:
    """The agent's connection is gone: the agent has died, or it will come back."""
    draft.set_host(name, connected=False, heard_at=draft.now)
    if dead:
        members = draft.state.members.values()
        here = [m for m in members if m.host == name and not m.connected]
        reason = f"its agent on {name} is gone"
        gone(draft, [member.name for member in here], KILLED, reason, blameless=True)


def _lost_hosts(draft: Draft) -> None:
    """Members of whom nothing is heard, neither from them nor from their agent, for too long."""
    state = draft.state
    lost = [m for m in state.members.values() if _is_lost(draft, m)]
    if lost and state.phase not in OVER and not _others_can_go_on(draft, lost):
        newcomers = [m for m in lost if m.stage in (Stage.STARTING, Stage.JOINED)]
        timeout = state.spec.elastic_timeout
        late = [m for m in lost if m not in newcomers and draft.now - m.heard_at > timeout]
        if late and state.has_begun:  # others were waited for all the while
            draft.set(waiting_since=min(m.heard_at for m in late))
        lost = [*newcomers, *late]
    _give_up(draft, lost)


def give_up_lost(draft: Draft) -> bool:
    """Wait no longer for those of whom nothing is heard; whether there are any."""
    lost = [member for member in draft.state.members.values() if _is_lost(draft, member)]
    _give_up(draft, lost)
    if lost and not draft.state.has_begun:
        is_waiting = draft.state.phase is Phase.WAITING
        draft.set(waiting_since=draft.now if is_waiting else None)  # for others, from now on
    return bool(lost)


def _give_up(draft: Draft, lost: list[MemberState]) -> None:
    quiet = ", ".join(dict.fromkeys(member.host for member in lost))
    for_long = max((draft.now - member.heard_at for member in lost), default=0.0)
    reason = f"no message from {quiet} for {for_long:.0f} s"
    gone(draft, [member.name for member in lost], KILLED, reason, blameless=True)


def _is_lost(draft: Draft, member: MemberState) -> bool:
    host = draft.state.hosts[member.host]
    hung_up = not host.connected and not host.awaited and not member.connected
    if hung_up and host.unlisted:
        return True
    if draft.now < draft.state.lenient_until:
        return False
    patience = _patience(draft, host)
    if hung_up and (_is_broken(draft.state) or draft.state.mode is not Mode.ELASTIC):
        # Somebody has died; or its processes hold no state, and those on other hosts must be
        # started again. An agent that lives dials again at once.
        patience = draft.state.spec.silence
    return draft.now - max(host.heard_at, member.heard_at) > patience


def _patience(draft: Draft, host: HostState) -> float:
    """A coordinator that was restarted elsewhere is found by its hosts only after a while.

    After training, only the exit codes are missing: hosts have the grace to tell them.
    """
    spec = draft.state.spec
    if draft.state.phase in OVER:
        return max(spec.lease, spec.grace)
    away = host.awaited and not host.unlisted
    return max(spec.lease, spec.come_back) if away else spec.lease


def _is_broken(state: State) -> bool:
    return state.suspicion is not None or state.phase is Phase.RECOVERING


def _others_can_go_on(draft: Draft, without: list[MemberState]) -> bool:
    """Whether somebody is left who is there and holds the training state, if there is one.

    A first world trains on unheard once all are in it. One that is heard, and is not in it yet,
    shows that it has not begun.
    """
    state = draft.state
    may_have_begun = state.has_begun or any(m.stage is Stage.ACTIVE for m in without)
    if not may_have_begun or state.mode is not Mode.ELASTIC:
        return any(host.connected for host in state.hosts.values())
    names = {member.name for member in without}
    names |= {*left_behind(state, draft.now, names)}
    oldest = draft.now - state.silence
    others = [
        m
        for m in state.members.values()
        if m.name not in names and m.connected and m.heard_at >= oldest
        if m.stage is not Stage.LEAVING  # whoever was let go comes back to no world
    ]
    if any(m.can_give for m in others):
        return True
    return not state.has_begun and any(m.stage is Stage.ACTIVE for m in others)


def _silent_members(draft: Draft) -> None:
    silence = draft.state.silence
    for member in tuple(draft.state.members.values()):
        if not member.joined or member.stage is Stage.STARTING:
            continue
        if member.stage is Stage.LEAVING and not member.connected:
            continue  # that is how they leave
        quiet = draft.now - member.heard_at
        host = draft.state.hosts.get(member.host)
        if quiet <= silence or host is None or not host.connected:
            continue
        patience = _patience_with_line(draft, member)
        if not member.connected and quiet > patience:
            reason = member.error or f"it did not come back within {patience:g} s"
            gone(draft, [member.name], KILLED, reason)
        elif member.probed_at is None or draft.now - member.probed_at > PROBE_AGAIN:
            draft.set_member(member.name, probed_at=draft.now)
            draft.probe(member)


def _patience_with_line(draft: Draft, member: MemberState) -> float:
    """How long a process that runs may be without a line to the coordinator.

    It trains on without one. If its script raised, it has closed the line for good; and others may
    wait for it, who can go on without it.
    """
    state = draft.state
    held_up = _is_broken(state) or state.phase is Phase.SWITCHING or state.forming is not None
    if member.error or (held_up and _others_can_go_on(draft, [member])):
        return state.spec.lease
    return state.spec.elastic_timeout


def watch_the_end(draft: Draft) -> None:
    """While members leave after training: those that run are waited for, and no others."""
    _lost_hosts(draft)
    leavers.watch(draft)
    leavers.say_who_is_left(draft)


def probed(draft: Draft, name: str, state: str) -> None:
    """The host's answer about a silent member, or about one that it did not mention."""
    member = draft.state.members.get(name)
    if member is None or state == "running":
        return
    if member.probed_at is None and member.connected:
        return  # it has been heard again meanwhile
    if state == "stopped":
        too_long = draft.now - member.heard_at > draft.state.spec.elastic_timeout
        late = leavers.is_late(draft, member)
        if too_long or late or _others_can_go_on(draft, [member]):
            draft.stop(member)
            gone(draft, [name], KILLED, "its process is stopped; it is ended")
    else:
        found_gone(draft, member, blameless=False)


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
    patience = _patience_with_collective(draft.state.named(forming.world))
    names = [
        m.name
        for m in draft.state.named(forming.world)
        if m.waiting and m.name not in forming.settled  # those wait in the next collective
        if draft.now - max(forming.began_at, m.moved_at) > patience
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
        draft.set(suspicion=draft.now + BREAK_SECONDS, suspected=generation, detail=reason)


def _patience_with_collective(members: list[MemberState]) -> float:
    """For one of a world that is over: whoever computes in a step counts as waiting, too."""
    rates = [member.rate for member in members if member.rate > 0]
    return STUCK_SECONDS + (STUCK_STEPS / min(rates) if rates else FIRST_STEP)


def _at_work(state: State) -> list[int]:
    """The generations in which members may be at work now."""
    if state.forming is not None:
        return [state.forming.world.generation]
    if state.world is None or state.phase not in TRAINING:
        return []
    change = state.change if state.phase is Phase.SWITCHING else None
    if change is None or change.world is None:
        return [state.world.generation]
    if change.has_been_entered:  # by one, so that all have left the world before it
        return [change.world.generation]
    return [state.world.generation, change.world.generation]


def _unexplained_break(draft: Draft) -> None:
    """A collective broke, and nobody turned out to be missing: form the world anew."""
    state = draft.state
    if state.suspicion is None or draft.now < state.suspicion:
        return
    oldest = draft.now - state.silence
    if all(member.connected and member.heard_at >= oldest for member in survivors(state)):
        why = f" ({state.detail})" if state.detail else ""
        line = f"a collective broke and nobody is missing{why}: forming a new world"
        draft.say(line, "warning")
        recover(draft, state.detail or "a collective broke", explained=False)
