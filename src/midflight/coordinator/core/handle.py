"""`handle(state, event) -> (state, commands)`: the coordinator's whole judgement.

The event is taken in, then `_advance` does what is due next. What concerns a host or member that is
no more is stale and changes nothing. The order of events is the order in which the shell noticed
them; nothing here depends on a clock but through `event.now`.
"""

from dataclasses import replace

from midflight.coordinator.core import (
    arrivals,
    events,
    formation,
    hosts,
    job_end,
    liveness,
    requests,
    resize,
    restarts,
    startup,
    trial,
)
from midflight.coordinator.core.commands import Command
from midflight.coordinator.core.departures import KILLED, cause, describe_exit, gone
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.labels import label
from midflight.coordinator.core.state import (
    OVER,
    Change,
    ChangeStage,
    Ended,
    MemberState,
    Mode,
    Phase,
    Request,
    State,
    ended,
)
from midflight.protocol.messages import Dismiss
from midflight.python310 import assert_never
from midflight.quantities import counted

OWN_SIZES = ("growth", "shrink")  # people's requests come first


def handle(state: State, event: events.Event) -> tuple[State, list[Command]]:
    draft = Draft(state, event.now)
    liveness.excuse_own_pause(draft)
    _take_in(draft, event)
    if draft.state.phase not in OVER:
        _advance(draft)
    return draft.state, draft.commands


def _take_in(draft: Draft, event: events.Event) -> None:
    match event:
        case events.Ticked():
            _ticked(draft, event)
        case events.Joined():
            arrivals.joined(draft, event)
            _all_finished(draft)
        case events.Exited():
            _exited(draft, event)
        case events.Broke():
            liveness.broke(draft, event.generation, event.reason)
        case events.Asked():
            _asked(draft, event)
        case events.StopAsked():
            _stop_asked(draft, event)
        case _ if isinstance(event, events.HostEvent):
            _about_host(draft, event)
        case _:
            member = draft.state.members.get(event.member)
            if member is None:
                return
            if isinstance(event, events.ProcessEvent):
                _about_process(draft, event, member)
            else:
                _about_member(draft, event, member)


def _about_host(draft: Draft, event: events.HostEvent) -> None:
    match event:
        case events.HostJoined():
            arrivals.host_joined(draft, event)
        case events.HostLost():
            if event.host in draft.state.hosts:
                liveness.host_hung_up(draft, event.host, dead=event.dead)
        case events.HostNoticed():
            _host_noticed(draft, event)
        case events.HostsListed():
            hosts.listed(draft, event.hosts)
        case _:
            assert_never(event)


def _about_process(draft: Draft, event: events.ProcessEvent, member: MemberState) -> None:
    match event:
        case events.Started():
            member = draft.set_member(event.member, pid=event.pid)
            if draft.state.phase is Phase.RESTARTING:  # the order to stop came before there was it
                draft.stop(member, restarts.STOP_GRACE, durable=True)
        case events.NotStarted():
            _not_started(draft, event, member)
        case events.Probed():
            liveness.probed(draft, event.member, event.state)
        case _:
            assert_never(event)


def _about_member(draft: Draft, event: events.MemberEvent, member: MemberState) -> None:
    match event:
        case events.Disconnected():
            _disconnected(draft, member)
        case events.Ready():
            _ready(draft, event, member)
        case events.NotReady():
            resize.not_ready(draft, event.member, event.generation, event.reason)
        case events.Settled():
            arrivals.settle(draft, event.member, event.generation, event.step)
            _all_finished(draft)
        case events.Noticed():
            _noticed(draft, event)
        case events.Finished():
            draft.set_member(event.member, finished=True, step=event.step, moved_at=draft.now)
            _all_finished(draft)
        case events.Failed():
            _failed(draft, event)
        case _:
            assert_never(event)


def _advance(draft: Draft) -> None:
    """Whatever is due now that the event has been taken in."""
    trial.look(draft)
    forms = draft.state.forming
    if forms is not None:
        if forms.resumed:
            formation.resume(draft)
        return
    if draft.state.phase is Phase.RECOVERING:
        formation.regroup(draft)
    match draft.state.phase:
        case Phase.STARTING:
            startup.begin(draft)
        case Phase.WAITING:
            formation.keep_waiting(draft)
        case Phase.PREPARING:
            resize.proceed(draft)
        case Phase.STABLE:
            _follow_wishes(draft)
        case _:
            pass


def _follow_wishes(draft: Draft) -> None:
    if draft.state.change is not None:
        resize.proceed(draft)
    elif wish := requests.next_wish(draft):
        _take_up(draft, requests.resolved(wish, draft.state))
    elif draft.state.size >= draft.state.wanted:
        resize.stop_all(draft, [member.name for member in requests.spares(draft.state)])


def _take_up(draft: Draft, request: Request) -> None:
    if request.hosts and not request.names:
        draft.answer(request, True, f"no member is on {', '.join(request.hosts)} any more")
    elif draft.state.mode is Mode.RESTART:
        restarts.resize(draft, request)
    else:
        resize.begin(draft, request)


def _ticked(draft: Draft, event: events.Ticked) -> None:
    liveness.listen(draft, event.beats, event.hosts_heard)
    if draft.state.phase in OVER:
        liveness.watch_the_end(draft)
        return
    liveness.watch(draft)
    if draft.state.mode is Mode.RESTART:
        restarts.check(draft)
    resize.check_deadline(draft)
    forming, since = draft.state.forming, draft.state.waiting_since
    waited = draft.now - since if since is not None else 0.0
    if draft.state.phase is Phase.WAITING and waited >= draft.state.spec.elastic_timeout:
        liveness.give_up_lost(draft)
    if forming is not None and draft.now >= forming.deadline and not liveness.give_up_lost(draft):
        job_end.fail(draft, "the members could not form a world within the elastic timeout")
    expired = [request for request in draft.state.queue if draft.now >= request.deadline]
    for request in expired:
        draft.answer(request, False, "other changes were under way until the timeout")
    if expired:
        draft.set(queue=tuple(r for r in draft.state.queue if r not in expired))


def _host_noticed(draft: Draft, event: events.HostNoticed) -> None:
    if event.host in draft.state.hosts:
        draft.set_host(event.host, leaving=True, notice_until=draft.now + event.notice)
        draft.say(f"host {event.host} leaves within {event.notice:g} s")
        startup.settle_if_restarted(draft)
        if any(m.host == event.host for m in draft.state.named(draft.state.world)):
            resize.make_way(draft)


def _not_started(draft: Draft, event: events.NotStarted, member: MemberState) -> None:
    nobody = not any(m.pid for m in draft.state.members.values())
    if draft.state.hosts[member.host].leaving:  # not the command's fault
        gone(draft, [event.member], KILLED, event.reason)
    elif draft.state.phase is Phase.STARTING and nobody:
        job_end.fail(draft, event.reason)
    else:
        gone(draft, [event.member], 127, event.reason)


def _exited(draft: Draft, event: events.Exited) -> None:
    member = draft.state.members.get(event.member)
    reason = (member and member.error) or describe_exit(event.code)
    last = event.tail.strip().splitlines()
    if event.code > 0 and not (member and member.error) and last:
        reason = f"{reason}: {last[-1]}"
    said = (member and member.error) or (last[-1] if last else "")
    vanished = dict(draft.state.vanished)
    if (lost := vanished.pop(event.member, None)) is not None:
        draft.set(vanished=vanished)
        draft.say(f"{label(draft.state, event.member)}: {reason}")
        _remember_failure(draft, replace(lost, code=event.code, reason=said), late=True)
    elif member is not None:
        culprit = cause(draft.state, member, draft.now)
        end = ended(draft.state, member, event.code, said)
        _remember_failure(draft, end if culprit is member else ended(draft.state, culprit, KILLED))
    if member is not None:
        host = draft.state.hosts.get(member.host)
        leaves = host is not None and host.leaving  # its agent ends what does not leave by itself
        gone(draft, [event.member], event.code, reason, blameless=leaves)


def _remember_failure(draft: Draft, end: Ended, *, late: bool = False) -> None:
    """The first one, and how it really ended if it was only known to be gone.

    `late`: the job may have ended of it before it was told.
    """
    first = draft.state.first_failure
    if first is None and end.code and (late or draft.state.phase not in OVER):
        draft.set(first_failure=end)
    elif first is not None and (first.host, first.slot, first.code) == (end.host, end.slot, KILLED):
        draft.set(first_failure=end if end.code else first)


def _disconnected(draft: Draft, member: MemberState) -> None:
    draft.set_member(member.name, connected=False, heard_at=draft.now)
    host = draft.state.hosts.get(member.host)
    if host is not None and host.connected and draft.state.phase not in OVER:
        draft.set_member(member.name, probed_at=draft.now)
        draft.probe(member)


def _ready(draft: Draft, event: events.Ready, member: MemberState) -> None:
    draft.set_member(
        event.member,
        step=max(member.step, event.step),
        horizon=max(member.horizon, event.horizon),
        heard_at=draft.now,
    )
    resize.ready(draft, event.member, event.generation)


def _noticed(draft: Draft, event: events.Noticed) -> None:
    if draft.state.phase in OVER:
        return
    draft.set_member(event.member, notice_until=draft.now + event.notice)
    named = label(draft.state, event.member)
    draft.say(f"{named} was told to end and leaves at a step boundary")
    awaited = any(host.awaited for host in draft.state.hosts.values())  # they may have room
    alone = len(draft.state.members) == 1 and not awaited and not requests.room(draft)
    if draft.state.world is not None and event.member in draft.state.world:
        resize.make_way(draft)
    unborn = draft.state.world is None and draft.state.forming is None
    if unborn or alone:
        draft.tell([event.member], Dismiss("no member can take over", failed=True))


def _all_finished(draft: Draft) -> None:
    state = draft.state
    if state.phase in OVER or state.forming is not None or state.world is None:
        return
    known = state.members
    if any(not known[name].finished for name in state.world.names if name in known):
        return  # found at once as long as they train
    if state.named(state.world):
        job_end.dismiss_finished(draft)


def _failed(draft: Draft, event: events.Failed) -> None:
    last = event.error.strip().splitlines()[-1] if event.error.strip() else event.kind
    draft.set_member(event.member, error=f"its script raised {last}")
    draft.set(first_error=draft.state.first_error or last)
    if event.kind == "StateError" and draft.state.world is None:
        job_end.fail(draft, last)


def _asked(draft: Draft, event: events.Asked) -> None:
    state = draft.state
    if event.request.id and _is_known(draft, event.request):
        return
    if state.phase in OVER:
        draft.answer(event.request, False, f"the job is over ({state.phase.value})")
        return
    if draft.now >= event.request.deadline:
        draft.answer(event.request, False, "its deadline had passed when it was requested")
        return
    request = requests.resolved(event.request, state)
    if state.world is not None and (problem := requests.objection(request, state)):
        draft.answer(event.request, False, problem)
        return
    if event.request.to is not None:
        _supersede(draft, event.request.to)
    change = draft.state.change
    if change is not None and not _switching(change) and change.request.origin in OWN_SIZES:
        resize.set_aside(draft)
    draft.set(queue=(*draft.state.queue, event.request))


def _is_known(draft: Draft, request: Request) -> bool:
    """A client that asks again is answered again, or waits for what it asked for before."""
    state = draft.state
    for outcome in state.outcomes:
        if outcome.id == request.id:
            draft.answer(replace(request, id=""), outcome.ok, outcome.detail)
            return True
    change = state.change
    if change is not None and change.request.id == request.id:
        same = replace(change.request, ticket=request.ticket)
        draft.set(change=replace(change, request=same))
        draft.inform(same, state.detail or state.phase.value)
        return True
    if trial.known(draft, request.id, request.ticket):
        return True
    queue = [replace(r, ticket=request.ticket) if r.id == request.id else r for r in state.queue]
    draft.set(queue=tuple(queue))
    return any(r.id == request.id for r in queue)


def _supersede(draft: Draft, to: int) -> None:
    """A target size makes earlier ones void, but for one that is being switched to already."""
    reason = f"superseded by a request for {counted(to, 'member')}"
    void = [r for r in draft.state.queue if r.to is not None]
    change = draft.state.change
    if change is not None and change.request.to is not None and not _switching(change):
        resize.set_aside(draft)
        void.append(change.request)
    for request in void:
        draft.answer(request, False, reason)
    draft.set(queue=tuple(r for r in draft.state.queue if r.to is None))


def _switching(change: Change) -> bool:
    return change.stage is ChangeStage.SWITCHING


def _stop_asked(draft: Draft, event: events.StopAsked) -> None:
    state = draft.state
    if state.phase in (Phase.SUCCEEDED, Phase.FAILED):
        return
    if event.code:
        job_end.stop(draft, event.reason, event.code)
    elif state.phase is Phase.ENDING:
        return  # that is what its members have been told
    elif state.mode is Mode.ELASTIC and state.world is not None:
        job_end.dismiss_finished(draft)
    else:
        job_end.succeed(draft)
