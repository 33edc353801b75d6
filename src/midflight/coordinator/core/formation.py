"""Forming a world at once: at the start, and after a failure.

Survivors are told first that the old generation is over, so that their blocked calls fail while
the new world is being written to the store; then they get the new world. Among themselves they
find out who is furthest and pass that state to whoever lacks it, so a failure costs the step that
was in flight and nothing else. A survivor who has just lost his line to the coordinator is neither
counted nor left out: the world is formed once it is known what became of him.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from midflight.coordinator.core import hosts
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.job_end import dismiss, dismiss_finished, fail
from midflight.coordinator.core.labels import label
from midflight.coordinator.core.placement import launch
from midflight.coordinator.core.requests import OWN_WISHES
from midflight.coordinator.core.state import (
    OVER,
    TRAINING,
    Change,
    ChangeStage,
    Forming,
    MemberState,
    Phase,
    Stage,
    State,
    rewound,
)
from midflight.protocol.messages import Dismiss, Form, Over
from midflight.protocol.world import World
from midflight.quantities import counted

STALL_LIMIT = 5  # unplanned worlds in a row that complete no step; more, if as many could die


def form(draft: Draft, members: Iterable[MemberState]) -> None:
    """Publish the next world, made of these members in this order."""
    state = draft.state
    world = World(state.generation + 1, tuple(member.member for member in members))
    forming = Forming(world, draft.now, draft.now + state.spec.elastic_timeout)
    draft.set(generation=world.generation, forming=forming, suspicion=None)
    if state.world:
        draft.enter(Phase.RECOVERING, state.detail)  # why
    else:
        draft.enter(Phase.STARTING)
    draft.set_members(world.names, stage=Stage.ACTIVE, moved_at=draft.now, waiting=False)
    draft.tell(world.names, Form(world), durable=True)


def lose(
    draft: Draft, names: Iterable[str], reason: str, *, cool: bool = True, counted: bool = True
) -> None:
    """Members are gone for good: take them out, and mend the world if they were in it."""
    lost = [draft.state.members[name] for name in names]
    touched = any(_matters(draft.state, member) for member in lost)
    named = ", ".join(label(draft.state, member.name) for member in lost)
    for member in lost:
        draft.stop(member)
        draft.drop_member(member.name)
    if cool:
        hosts.blame(draft, lost)
    if touched:
        draft.say(f"lost {named}: {reason}", "warning")
        recover(draft, f"{named}: {reason}", counted=counted)


def _matters(state: State, member: MemberState) -> bool:
    """Whether the others cannot go on without noticing."""
    change = state.change
    if change is not None and change.stage is ChangeStage.SWITCHING:
        gone_already = member.name in change.leavers and member.name in change.settled
        return member.stage is Stage.ACTIVE and not gone_already
    return member.stage is Stage.ACTIVE


def survivors(state: State) -> list[MemberState]:
    """Who can be in the next world, in rank order: the old members first, then joiners."""
    ranked = {member.name: member for member in state.named(state.world)}
    return [
        member for member in {**ranked, **state.members}.values() if member.stage is Stage.ACTIVE
    ]


def recover(draft: Draft, reason: str, *, explained: bool = True, counted: bool = True) -> None:
    """The world is broken: form the next one from whoever is left, or wait for others."""
    state = draft.state
    if state.phase in OVER:
        return
    if state.phase in TRAINING or not explained:  # further deaths meanwhile are the same failure
        draft.set(resets=state.resets + counted, stalls=state.stalls + 1)
    audience = [m.name for m in survivors(state)]
    if state.change is not None:
        audience += [name for name in state.change.joiners if name not in audience]
        _take_back(draft, state.change)
    draft.tell(audience, Over(state.generation))
    draft.set(forming=None, suspicion=None, broken_at=draft.now)
    draft.enter(Phase.RECOVERING, reason)
    limit = state.spec.reset_limit
    stalls = STALL_LIMIT if not explained else max(STALL_LIMIT, state.wanted)
    if limit is not None and draft.state.resets > limit:
        fail(
            draft,
            f"the job was reset more often than {_limit_flag(state)} {limit} allows; "
            f"last: {reason}",
        )
    elif draft.state.stalls > stalls:
        fail(draft, f"{stalls} worlds in a row completed no step; the last one broke: {reason}")
    else:
        regroup(draft)


def _limit_flag(state: State) -> str:
    return "--reset-limit" if state.spec.dialect.max_restarts is None else "--max-restarts"


def _take_back(draft: Draft, change: Change) -> None:
    """The change that was under way starts over with the world that comes next."""
    draft.set_members(left_behind(draft.state, draft.now), outdated=True)
    own = change.request.origin in OWN_WISHES
    draft.set(change=None if own else rewound(change))


def left_behind(state: State, now: float, lost: Collection[str] = ()) -> tuple[str, ...]:
    """Those who left at a switch, if the world after it may have done steps; else nobody.

    Their state is no longer the job's then. A step needs all members of that world: one that has
    not settled, and is heard and not among the `lost`, shows that none was done.
    """
    change = state.change
    if change is None or change.stage is not ChangeStage.SWITCHING or change.world is None:
        return ()
    names = [name for name in change.world.names if name not in change.settled]
    behind = [m for m in survivors(state) if m.name in names and m.name not in lost]
    if any(m.connected and now - m.heard_at <= state.silence for m in behind):
        return ()
    went_on = change.has_been_entered or change.resumed or state.best_step > change.step
    return change.leavers if went_on else ()


def regroup(draft: Draft) -> None:
    """In RECOVERING, with no world announced: announce one if everybody is accounted for."""
    state = draft.state
    alive = survivors(state)
    if not all(member.connected for member in alive):
        return  # they come back, or their process or host is found to be gone
    if alive and all(member.finished for member in alive):
        dismiss_finished(draft)
    elif state.has_begun and not any(member.can_give for member in alive):
        if any(member.heard_at < state.broken_at for member in alive):
            return  # the word that it has the state may be on its way
        fail(draft, f"no remaining member holds the training state ({state.detail})")
    elif not state.members and state.first_error:
        fail(draft, f"all members ended before training began; the last: {state.detail}")
    elif len(alive) < state.spec.min_np:
        _wait_for_more(draft, alive)
    else:
        form(draft, _within_bounds(draft, alive))


def _within_bounds(draft: Draft, alive: list[MemberState]) -> list[MemberState]:
    """Both those who came and those who were to leave may be too many together."""
    excess = max(0, len(alive) - draft.state.spec.max_np)
    change = draft.state.change
    leavers = (*change.leavers, *change.request.names) if change is not None else ()
    going = [m for m in alive if m.name in leavers][:excess]
    newcomers = [m for m in reversed(alive) if not m.can_give and m not in going]
    out = [*going, *newcomers[: excess - len(going)]]
    rest = [member for member in alive if member not in out]
    if not any(member.can_give for member in rest):
        return alive
    dismiss(draft, [member.name for member in out], "the job has been made smaller")
    return rest


def resume(draft: Draft) -> None:
    """A world that was being formed when the former coordinator died: all are back by now.

    Nobody knows who heard of it, and the keys for connecting it are lost, so unless all of them
    say that they are in it another one is formed.
    """
    if all(member.connected for member in survivors(draft.state)):
        recover(draft, "the coordinator was restarted while the world was being formed")


def _wait_for_more(draft: Draft, alive: list[MemberState]) -> None:
    spec = draft.state.spec
    if draft.state.waiting_since is None:
        draft.set(waiting_since=draft.now)
        waits = "they keep their memory and wait" if alive else "the job waits"
        draft.say(
            f"{counted(len(alive), 'member')} left, fewer than --min-np {spec.min_np}; "
            f"{waits} up to {spec.elastic_timeout:g} s for others",
            "warning",
        )
    draft.enter(Phase.WAITING, draft.state.detail)


def keep_waiting(draft: Draft) -> None:
    """In WAITING: form a world as soon as enough have joined; give up after the timeout."""
    state = draft.state
    alive = survivors(state)
    here = [m for m in state.members.values() if m.stage is Stage.JOINED and m.connected]
    since = draft.now if state.waiting_since is None else state.waiting_since
    if draft.now - since < state.spec.elastic_timeout:
        if len(alive) + len(here) < state.spec.min_np:
            coming = sum(m.stage in (Stage.STARTING, Stage.JOINED) for m in state.members.values())
            launch(draft, max(0, state.wanted - len(alive) - coming))
        elif all(member.connected for member in alive):
            form(draft, [*alive, *here][: state.spec.max_np])
        return
    draft.tell([m.name for m in alive], Dismiss("too few members", failed=True))
    fail(
        draft,
        f"{counted(state.spec.min_np, 'member')} needed, {len(alive)} left, and no others came "
        f"within {state.spec.elastic_timeout:g} s ({hosts.describe_capacity(state, draft.now)})",
    )


def settled(draft: Draft, name: str, step: int) -> None:
    """A member is in the world being formed; when all of them are, it is the world."""
    forming = draft.state.forming
    assert forming is not None
    if name not in forming.world:
        return
    draft.set_member(name, outdated=False)
    forming = replace(forming, settled=forming.settled | {name})
    draft.set(forming=forming)
    if len(forming.settled) < forming.world.size:
        return
    first = draft.state.world is None
    draft.set(forming=None, world=forming.world, waiting_since=None)
    draft.enter(Phase.STABLE)
    verb = "training with" if first else "went on with"
    draft.say(
        f"{verb} {counted(forming.world.size, 'member')} from step {step} "
        f"(generation {forming.world.generation})"
    )
