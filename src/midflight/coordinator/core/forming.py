"""Forming a world at once: at the start, and after a failure.

Survivors are told first that the old generation is over, so that their blocked calls fail while
the new world is being written to the store; then they get the new world. Among themselves they
find out who is furthest and pass that state to whoever lacks it, so a failure costs the step that
was in flight and nothing else.
"""

from collections.abc import Iterable
from dataclasses import replace

from midflight.coordinator.core import hosts
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.ending import dismiss_finished, fail
from midflight.coordinator.core.placing import launch
from midflight.coordinator.core.state import (
    OVER,
    ChangeStage,
    Forming,
    MemberState,
    Phase,
    Stage,
)
from midflight.protocol.messages import Dismiss, Form, Over
from midflight.protocol.world import World

STALL_LIMIT = 5  # unplanned worlds in a row that complete no step


def form(draft: Draft, members: Iterable[MemberState]) -> None:
    """Publish the next world, made of these members in this order."""
    state = draft.state
    world = World(state.generation + 1, tuple(member.member for member in members))
    deadline = draft.now + state.spec.elastic_timeout
    draft.set(
        generation=world.generation,
        forming=Forming(world, deadline),
        waiting_since=None,
        suspicion=None,
    )
    draft.enter(Phase.RECOVERING if state.world else Phase.STARTING)
    draft.set_members(world.names, stage=Stage.ACTIVE, moved_at=draft.now, waiting=False)
    draft.tell(world.names, Form(world), durable=True)


def lose(draft: Draft, names: Iterable[str], reason: str, *, cool: bool = True) -> None:
    """Members are gone for good: take them out, and mend the world if they were in it."""
    gone = [name for name in names if name in draft.state.members]
    if not gone:
        return
    lost = [draft.state.members[name] for name in gone]
    touched = any(_matters(draft, name) for name in gone)
    for member in lost:
        draft.stop(member)
        draft.drop_member(member.name)
    if cool:
        for host in dict.fromkeys(member.host for member in lost):
            hosts.cool_down(draft, host)
    if touched:
        draft.say(f"lost {', '.join(gone)}: {reason}", "warning")
        recover(draft, f"{', '.join(gone)}: {reason}")


def _matters(draft: Draft, name: str) -> bool:
    """Whether the others cannot go on without noticing."""
    state = draft.state
    if state.phase in OVER:
        return False
    if state.forming is not None:
        return name in state.forming.world
    change = state.change
    switching = change is not None and change.stage is ChangeStage.SWITCHING
    if switching and change is not None and change.world is not None:
        gone_already = name in change.leavers and name in change.settled
        return not gone_already and (name in change.world or name in change.leavers)
    return state.world is not None and name in state.world


def survivors(draft: Draft) -> list[MemberState]:
    """Who can be in the next world, in rank order: the old members first, then joiners."""
    state = draft.state
    order: dict[str, None] = {}
    for world in (state.world, state.forming and state.forming.world):
        order.update(dict.fromkeys(world.names if world else ()))
    change = state.change
    if change is not None and change.stage is ChangeStage.SWITCHING and change.world:
        order.update(dict.fromkeys(change.world.names))
    return [
        state.members[name]
        for name in order
        if name in state.members
        and state.members[name].connected
        and state.members[name].stage is not Stage.LEAVING
    ]


def recover(draft: Draft, reason: str) -> None:
    """The world is broken: form the next one from whoever is left, or wait for others."""
    state = draft.state
    if state.phase in OVER:
        return
    alive = survivors(draft)
    draft.tell([member.name for member in alive], Over(state.generation))
    draft.set(resets=state.resets + 1, stalls=state.stalls + 1)
    _rewind_change(draft)
    draft.set(forming=None, suspicion=None)
    limit = state.spec.reset_limit
    if limit is not None and draft.state.resets > limit:
        fail(
            draft, f"the job was reset more often than --reset-limit {limit} allows; last: {reason}"
        )
    elif draft.state.stalls > STALL_LIMIT:
        fail(
            draft, f"{STALL_LIMIT} worlds in a row completed no step; the last one broke: {reason}"
        )
    elif alive and all(member.finished for member in alive):
        dismiss_finished(draft)
    elif not any(member.holds_state for member in alive) and state.world is not None:
        fail(draft, f"nobody is left who holds the training state ({reason})")
    elif len(alive) < state.spec.min_np:
        wait_for_more(draft, reason)
    else:
        form(draft, alive)


def _rewind_change(draft: Draft) -> None:
    """A change that was under way starts over with the world that comes next."""
    change = draft.state.change
    if change is None:
        return
    draft.set(
        change=replace(
            change,
            stage=ChangeStage.STARTING,
            world=None,
            ready=frozenset(),
            settled=frozenset(),
        )
    )


def wait_for_more(draft: Draft, reason: str) -> None:
    since = draft.state.waiting_since
    draft.set(waiting_since=draft.now if since is None else since)
    draft.enter(Phase.WAITING, reason)
    if since is None:
        draft.say(
            f"{len(survivors(draft))} members are left, fewer than --min-np "
            f"{draft.state.spec.min_np}; they keep their memory and wait up to "
            f"{draft.state.spec.elastic_timeout:g} s for others",
            "warning",
        )


def keep_waiting(draft: Draft) -> None:
    """In WAITING: form a world as soon as enough have joined; give up after the timeout."""
    state = draft.state
    alive = survivors(draft)
    spare = [
        member
        for member in state.members.values()
        if member.connected and member.stage is Stage.JOINED
    ]
    starting = [m for m in state.members.values() if m.stage is Stage.STARTING]
    if len(alive) + len(spare) >= state.spec.min_np:
        form(draft, [*alive, *spare])
        return
    since = draft.now if state.waiting_since is None else state.waiting_since
    if draft.now - since >= state.spec.elastic_timeout:
        draft.tell([m.name for m in alive], Dismiss("too few members", failed=True))
        fail(
            draft,
            f"{state.spec.min_np} members are needed, {len(alive)} are left, and no others came "
            f"within {state.spec.elastic_timeout:g} s "
            f"({hosts.describe_capacity(state, draft.now)})",
        )
        return
    launch(draft, max(0, state.wanted - len(alive) - len(spare) - len(starting)))


def settled(draft: Draft, name: str, step: int) -> bool:
    """A member is in the world being formed; True when all of them are."""
    forming = draft.state.forming
    assert forming is not None
    draft.set_member(name, holds_state=True, step=step, moved_at=draft.now)
    forming = replace(forming, settled=forming.settled | {name})
    draft.set(forming=forming)
    if forming.settled < set(forming.world.names):
        return False
    first = draft.state.world is None
    draft.set(forming=None, world=forming.world)
    draft.enter(Phase.STABLE)
    verb = "training with" if first else "went on with"
    draft.say(
        f"{verb} {forming.world.size} members from step {step} "
        f"(generation {forming.world.generation})"
    )
    return True
