"""Agents and members that dial in, for the first time or again.

What was on its way when a connection broke may be lost, in both directions, and so may everything
when the coordinator itself was away. Whoever comes back is therefore told again what is valid now;
repeating it does no harm. What an agent was never told to start is ordered again, what it runs
without need is stopped.
"""

from midflight.coordinator.core import (
    events,
    formation,
    hosts,
    job_end,
    placement,
    resize,
    startup,
)
from midflight.coordinator.core.commands import Stop
from midflight.coordinator.core.departures import KILLED, found_gone, gone
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.restarts import STOP_GRACE
from midflight.coordinator.core.state import OVER, TRAINING, ChangeStage, Mode, Phase, Stage
from midflight.protocol.messages import Abandon, Dismiss, Form, Over, Prepare, Switch


def host_joined(draft: Draft, event: events.HostJoined) -> None:
    hosts.joined(draft, event.host, event.slots, event.address, event.door)
    running = {item.member for item in event.members}
    for item in event.members:
        if item.member not in draft.state.members:
            draft.commands.append(Stop(item.member, event.host, 0.0))  # nobody knows it any more
        else:
            draft.set_member(item.member, pid=item.pid)
            if draft.state.phase is Phase.RESTARTING:
                draft.stop(draft.state.members[item.member], STOP_GRACE, durable=True)
    absent = [
        member
        for member in draft.state.members.values()
        if member.host == event.host and member.name not in running
    ]
    started = [m for m in absent if m.pid or m.name in event.ended]
    for member in started:
        if member.connected or member.name in event.ended:  # the agent says how it ended
            draft.probe(member)
        else:  # that agent was started after its death: the host failed, and not the script
            found_gone(draft, member, blameless=True)
    _start_again(draft, [member.name for member in absent if member not in started])


def _start_again(draft: Draft, names: list[str]) -> None:
    if draft.state.phase is Phase.RESTARTING or draft.state.phase in OVER:
        gone(draft, names, KILLED, "it was never started")
    elif (
        names
        and draft.state.mode is not Mode.ELASTIC
        and draft.state.spec.dialect.max_restarts is not None
    ):
        # They were to meet at a port that the former coordinator knew: all get another one.
        if draft.state.mode is Mode.UNKNOWN:
            startup.settle_for_restarts(draft)
        gone(draft, names, KILLED, "it was never started", blameless=True)
    elif names:
        placement.launch_again(draft, names)


def joined(draft: Draft, event: events.Joined) -> None:
    member = draft.state.members.get(event.member)
    if member is None:
        draft.tell([event.member], Dismiss("the job continues without this member", failed=True))
        return
    if draft.state.phase in (Phase.RESTARTING, Phase.SUCCEEDED, Phase.FAILED):
        return  # it is being stopped
    if draft.state.mode is Mode.RESTART:
        startup.settle_for_elastic(draft)
    draft.set(mode=Mode.ELASTIC, best_step=max(draft.state.best_step, event.step))
    stage = draft.state.members[event.member].stage
    draft.set_member(
        event.member,
        pid=event.pid,
        connected=True,
        joined=True,
        stage=Stage.JOINED if stage is Stage.STARTING else stage,
        heard_at=draft.now,
        moved_at=draft.now,
        step=event.step,
        probed_at=None,
    )
    settle(draft, event.member, event.generation, event.step)
    _end_again(draft, event.over)
    _remind(draft, event.member)


def _end_again(draft: Draft, over: int) -> None:
    """A former coordinator ended a generation, and died before it had saved the next world."""
    world = draft.state.world
    draft.set(generation=max(draft.state.generation, over))
    training = draft.state.phase in TRAINING and draft.state.forming is None
    if training and world is not None and over >= world.generation:
        formation.recover(draft, "the coordinator was restarted while the world was being formed")


def settle(draft: Draft, name: str, generation: int, step: int) -> None:
    """A member says that it is in a generation; it may be the one that is being entered."""
    if generation:
        draft.set_member(name, holds_state=True, step=step, moved_at=draft.now, heard_at=draft.now)
    current = draft.state.forming
    if current is not None and current.world.generation == generation:
        formation.settled(draft, name, step)
    else:
        resize.settled(draft, name, generation)
    draft.set(best_step=max(draft.state.best_step, step))


def _remind(draft: Draft, name: str) -> None:
    """Say again to a member that came back what it may have missed."""
    state = draft.state
    member = state.members[name]
    change = state.change
    if member.stage is Stage.LEAVING:
        first = job_end.first_left(state)
        draft.tell([name], Dismiss("training is over", False, first), durable=True)
    elif state.forming is not None:
        if name in state.forming.world and not state.forming.resumed:
            draft.tell([name], Form(state.forming.world), durable=True)
    elif state.phase in (Phase.RECOVERING, Phase.WAITING):
        draft.tell([name], Over(state.generation))
    elif change is not None and change.world is not None:
        if change.stage is ChangeStage.CONNECTING and name in change.world:
            draft.tell([name], Prepare(change.world, change.joiners), durable=True)
        elif change.stage is ChangeStage.SWITCHING and member.stage is Stage.ACTIVE:
            draft.tell([name], Switch(change.world, change.joiners, change.step), durable=True)
    elif state.world is not None and state.generation > state.world.generation:
        draft.tell([name], Abandon(state.generation))
