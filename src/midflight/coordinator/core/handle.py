"""`handle(state, event) -> (state, commands)`: the coordinator's whole judgement.

One small function per event; `_advance` ends each with what is due next. The order of events is the
order in which the shell noticed them; nothing here depends on a clock but through `event.now`.
"""

import signal
from collections.abc import Callable
from typing import Any

from midflight.coordinator.core import (
    ending,
    events,
    forming,
    hosts,
    launching,
    resizing,
    restarting,
    watching,
)
from midflight.coordinator.core.commands import Command, Stop
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.state import OVER, ChangeStage, Mode, Phase, Stage, State
from midflight.protocol.messages import Dismiss, Form, Switch

BREAK_SECONDS = 0.25  # how long the reason for a broken collective is waited for


def handle(state: State, event: events.Event) -> tuple[State, list[Command]]:
    draft = Draft(state, event.now)
    _HANDLERS[type(event)](draft, event)
    if draft.state.phase not in OVER:
        _advance(draft)
    return draft.state, draft.commands


def _advance(draft: Draft) -> None:
    """Whatever is due now that the event has been taken in."""
    phase = draft.state.phase
    if phase is Phase.STARTING and draft.state.forming is None:
        launching.begin(draft)
    elif phase is Phase.WAITING:
        forming.keep_waiting(draft)
    elif phase is Phase.PREPARING:
        resizing.proceed(draft)
    elif phase is Phase.STABLE:
        if draft.state.change is not None:
            resizing.proceed(draft)
        elif wish := resizing.next_wish(draft):
            restarts = draft.state.mode is Mode.RESTART
            (restarting.resize if restarts else resizing.begin)(draft, wish)


def _ticked(draft: Draft, event: events.Ticked) -> None:
    watching.listen(draft, event.beats, event.hosts_heard)
    if draft.state.phase in OVER:
        return
    watching.watch(draft)
    if draft.state.mode is Mode.RESTART:
        restarting.check(draft)
    resizing.check_deadline(draft)
    late = draft.state.forming is not None and draft.now >= draft.state.forming.deadline
    if late:
        ending.fail(draft, "the members could not form a world within the elastic timeout")
    expired = [request for request in draft.state.queue if draft.now >= request.deadline]
    for request in expired:
        draft.answer(request, False, "other changes were under way until the timeout")
    if expired:
        draft.set(queue=tuple(r for r in draft.state.queue if r not in expired))


def _host_joined(draft: Draft, event: events.HostJoined) -> None:
    hosts.joined(draft, event.host, event.slots, event.address)
    running = {item.member for item in event.members}
    for item in event.members:
        if item.member not in draft.state.members:
            draft.commands.append(Stop(item.member, event.host, 0.0))  # nobody knows it any more
        else:
            draft.set_member(item.member, pid=item.pid)
    missing = [
        member.name
        for member in draft.state.members.values()
        if member.host == event.host and member.pid and member.name not in running
    ]
    for name in missing:
        _gone(draft, name, 0 if draft.state.members[name].finished else 1, "it ended unseen")


def _host_lost(draft: Draft, event: events.HostLost) -> None:
    if event.host not in draft.state.hosts:
        return
    draft.set_host(event.host, connected=False, heard_at=draft.now)
    gone = [
        member
        for member in draft.state.members.values()
        if member.host == event.host and not member.connected
    ]
    for member in gone:
        _gone(draft, member.name, -signal.SIGKILL, f"its agent on {event.host} is gone")


def _host_noticed(draft: Draft, event: events.HostNoticed) -> None:
    if event.host in draft.state.hosts:
        draft.set_host(event.host, leaving=True, notice_until=draft.now + event.notice)
        draft.say(f"host {event.host} leaves within {event.notice:g} s")


def _hosts_listed(draft: Draft, event: events.HostsListed) -> None:
    far = draft.now + draft.state.spec.grace
    for name, host in tuple(draft.state.hosts.items()):
        if name not in event.hosts and not host.leaving:
            draft.set_host(name, leaving=True, notice_until=far)
        elif name in event.hosts and host.slots != event.hosts[name]:
            draft.set_host(name, slots=event.hosts[name])


def _started(draft: Draft, event: events.Started) -> None:
    if event.member in draft.state.members:
        draft.set_member(event.member, pid=event.pid)


def _not_started(draft: Draft, event: events.NotStarted) -> None:
    if draft.state.phase is Phase.STARTING and event.member in draft.state.members:
        ending.fail(draft, event.reason)
        return
    _gone(draft, event.member, 127, event.reason)


def _exited(draft: Draft, event: events.Exited) -> None:
    member = draft.state.members.get(event.member)
    if member is None:
        return
    reason = member.error or describe_exit(event.code)
    last = event.tail.strip().splitlines()
    if event.code > 0 and not member.error and last:
        reason = f"{reason}: {last[-1]}"
    _gone(draft, event.member, event.code, reason)


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _gone(draft: Draft, name: str, code: int, reason: str) -> None:
    """A process has ended, by whatever way this became known."""
    member = draft.state.members.get(name)
    if member is None:
        return
    state = draft.state
    if state.mode is not Mode.ELASTIC and state.phase not in OVER:
        if state.mode is Mode.UNKNOWN:
            launching.settle_for_restarts(draft)
        restarting.exited(draft, name, code, reason)
        return
    change = state.change
    if member.stage is Stage.LEAVING or state.phase in OVER:
        _left(draft, name, code, reason)
    elif change is not None and name in change.joiners and not _switching(draft):
        draft.drop_member(name)
        hosts.cool_down(draft, member.host)
        resizing.abort(draft, f"{name} on {member.host} ended before it was ready: {reason}")
    elif state.world is None and state.forming is None:
        _start_failed(draft, name, reason)
    else:
        forming.lose(draft, [name], reason, cool=code != 0)


def _switching(draft: Draft) -> bool:
    change = draft.state.change
    return change is not None and change.stage is ChangeStage.SWITCHING


def _left(draft: Draft, name: str, code: int, reason: str) -> None:
    draft.drop_member(name)
    if draft.state.phase is not Phase.ENDING:
        return
    if code != 0 and draft.state.exit_code is None:
        draft.set(exit_code=1, first_error=f"{name} failed after training: {reason}")
    if not draft.state.members:
        if draft.state.exit_code:
            ending.stop(draft, draft.state.first_error, 1)
            draft.say(draft.state.first_error, "error")
        else:
            ending.succeed(draft)


def _start_failed(draft: Draft, name: str, reason: str) -> None:
    """Before the first world: others may still make it."""
    host = draft.state.members[name].host
    draft.drop_member(name)
    hosts.cool_down(draft, host)
    draft.say(f"{name} on {host} ended before training began: {reason}", "warning")
    if not draft.state.members:
        ending.fail(draft, f"all members ended before training began; the last: {reason}")


def _joined(draft: Draft, event: events.Joined) -> None:
    member = draft.state.members.get(event.member)
    if member is None:
        draft.tell([event.member], Dismiss("the job goes on without this member", failed=True))
        return
    draft.set(mode=Mode.ELASTIC)
    stage = Stage.JOINED if member.stage is Stage.STARTING else member.stage
    draft.set_member(
        event.member,
        pid=event.pid,
        connected=True,
        joined=True,
        stage=stage,
        heard_at=draft.now,
        moved_at=draft.now,
        step=event.step,
        probed_at=None,
        holds_state=event.generation > 0,
    )
    draft.set(best_step=max(draft.state.best_step, event.step))
    _remind(draft, event.member)


def _remind(draft: Draft, name: str) -> None:
    """Say again to a member that came back what it may have missed."""
    state = draft.state
    if state.forming is not None and name in state.forming.world:
        draft.tell([name], Form(state.forming.world), durable=True)
    change = state.change
    if change is not None and change.world is not None and _switching(draft):
        draft.tell([name], Switch(change.world, change.joiners, change.step), durable=True)
    if state.members[name].stage is Stage.LEAVING:
        draft.tell([name], Dismiss("training is over", failed=False))


def _disconnected(draft: Draft, event: events.Disconnected) -> None:
    member = draft.state.members.get(event.member)
    if member is None:
        return
    draft.set_member(event.member, connected=False, heard_at=draft.now)
    host = draft.state.hosts.get(member.host)
    if host is None or not host.connected:
        _gone(draft, event.member, -signal.SIGKILL, f"it and its agent on {member.host} are gone")
    elif draft.state.phase not in OVER:
        draft.set_member(event.member, probed_at=draft.now)
        draft.probe(member)


def _probed(draft: Draft, event: events.Probed) -> None:
    watching.probed(draft, event.member, event.state)


def _ready(draft: Draft, event: events.Ready) -> None:
    if event.member in draft.state.members:
        member = draft.state.members[event.member]
        draft.set_member(
            event.member,
            step=max(member.step, event.step),
            horizon=max(member.horizon, event.horizon),
            heard_at=draft.now,
        )
        resizing.ready(draft, event.member, event.generation)


def _not_ready(draft: Draft, event: events.NotReady) -> None:
    change = draft.state.change
    if change is None or change.stage is not ChangeStage.CONNECTING or change.world is None:
        return
    if change.world.generation == event.generation:
        resizing.abort(draft, f"{event.member} could not prepare: {event.reason}")


def _settled(draft: Draft, event: events.Settled) -> None:
    if event.member not in draft.state.members:
        return
    current = draft.state.forming
    if current is not None and current.world.generation == event.generation:
        forming.settled(draft, event.member, event.step)
    else:
        resizing.settled(draft, event.member, event.generation, event.step)
    draft.set(best_step=max(draft.state.best_step, event.step))
    _all_finished(draft)


def _broke(draft: Draft, event: events.Broke) -> None:
    """A collective failed somewhere. Usually the reason is known within milliseconds."""
    state = draft.state
    if state.suspicion is None and event.generation == state.generation:
        draft.set(suspicion=draft.now + BREAK_SECONDS, detail=event.reason)


def _noticed(draft: Draft, event: events.Noticed) -> None:
    if event.member in draft.state.members:
        draft.set_member(event.member, notice_until=draft.now + event.notice)
        draft.say(f"{event.member} was told to end and leaves at a step boundary")
        if draft.state.phase is Phase.STARTING or len(draft.state.members) == 1:
            draft.tell([event.member], Dismiss("nobody is there to take over", failed=True))


def _finished(draft: Draft, event: events.Finished) -> None:
    if event.member in draft.state.members:
        draft.set_member(event.member, finished=True, step=event.step, moved_at=draft.now)
        _all_finished(draft)


def _all_finished(draft: Draft) -> None:
    state = draft.state
    members = state.named(state.world)
    if state.phase in OVER or state.forming is not None or not members:
        return
    if all(member.finished for member in members):
        ending.dismiss_finished(draft)


def _failed(draft: Draft, event: events.Failed) -> None:
    if event.member not in draft.state.members:
        return
    last = event.error.strip().splitlines()[-1] if event.error.strip() else event.kind
    draft.set_member(event.member, error=f"its script raised {last}")
    draft.set(first_error=draft.state.first_error or last)
    if event.kind == "StateError" and draft.state.world is None:
        ending.fail(draft, last)


def _asked(draft: Draft, event: events.Asked) -> None:
    state = draft.state
    if state.phase in OVER:
        draft.answer(event.request, False, f"the job is over ({state.phase.value})")
        return
    if state.world is not None and (problem := resizing.objection(event.request, state)):
        draft.answer(event.request, False, problem)
        return
    queue = state.queue
    if event.request.to is not None:
        for old in queue:
            if old.to is not None and old.origin == "request":
                draft.answer(old, False, f"superseded by a request for {event.request.to} members")
        queue = tuple(r for r in queue if r.to is None or r.origin != "request")
    own_wish = state.change is not None and state.change.request.origin in ("growth", "shrink")
    if own_wish and not _switching(draft):
        resizing.abort(draft, "a request came in")
    draft.set(queue=(*queue, event.request))


def _stop_asked(draft: Draft, event: events.StopAsked) -> None:
    if draft.state.phase not in (Phase.SUCCEEDED, Phase.FAILED):
        ending.stop(draft, event.reason, event.code)


_HANDLERS: dict[type[events.Event], Callable[[Draft, Any], None]] = {
    events.Ticked: _ticked,
    events.HostJoined: _host_joined,
    events.HostLost: _host_lost,
    events.HostNoticed: _host_noticed,
    events.HostsListed: _hosts_listed,
    events.Started: _started,
    events.NotStarted: _not_started,
    events.Exited: _exited,
    events.Probed: _probed,
    events.Joined: _joined,
    events.Disconnected: _disconnected,
    events.Ready: _ready,
    events.NotReady: _not_ready,
    events.Settled: _settled,
    events.Broke: _broke,
    events.Noticed: _noticed,
    events.Finished: _finished,
    events.Failed: _failed,
    events.Asked: _asked,
    events.StopAsked: _stop_asked,
}
