"""Starting: the first members of a job.

The job starts when there are slots for the wanted number of members, or, once the start timeout
has passed, for the minimum; the rest joins as slots appear. An eager job does not wait for the
timeout when every host that there is has joined. A job with a last call waits that long for more,
from the moment on at which the minimum fits.
"""

from midflight.coordinator.core import formation, hosts
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.job_end import fail
from midflight.coordinator.core.placement import launch
from midflight.coordinator.core.state import MemberState, Mode, Phase, Stage, State
from midflight.protocol.job import JobSpec
from midflight.protocol.world import World
from midflight.quantities import counted

LISTED_SECONDS = 3.0  # for other hosts that are listed, when there are slots for the minimum


def begin(draft: Draft) -> None:
    """In STARTING: launch the first members once there is room for them."""
    state = draft.state
    if state.launched_at is not None:
        _first_world(draft)
        return
    room = len(hosts.free_slots(state, draft.now))
    late = draft.now - state.started_at >= state.spec.start_timeout
    late = late or (state.spec.eager and hosts.all_listed_are_there(state, draft.now))
    if state.spec.dialect.last_call is not None:
        late = _last_call_is_over(draft, room, state.spec.dialect.last_call)
    enough = room >= state.wanted and not _more_are_listed(draft, room)
    if enough or (late and room >= state.spec.min_np):
        count = min(room, state.wanted)
        draft.set(launched_at=draft.now)
        launch(draft, count, ranked=True)
        draft.say(f"starting {count} of {state.wanted} wanted members", "debug")
    elif draft.now - state.started_at >= _patience(state.spec):
        fail(
            draft,
            f"slots for {counted(state.spec.min_np, 'member')} wanted, {room} found within "
            f"{_patience(state.spec):g} s ({hosts.describe_capacity(state, draft.now)})",
        )


def _more_are_listed(draft: Draft, room: int) -> bool:
    """A job that takes all slots begins with those of the hosts that are about to come, too."""
    state = draft.state
    if not state.spec.dialect.takes_all_slots or state.listed is None:
        return False
    if hosts.all_listed_are_there(state, draft.now):
        return False
    return not _last_call_is_over(draft, room, LISTED_SECONDS)


def _last_call_is_over(draft: Draft, room: int, last_call: float) -> bool:
    if room < draft.state.spec.min_np:
        draft.set(enough_since=None)
        return False
    since = draft.now if draft.state.enough_since is None else draft.state.enough_since
    draft.set(enough_since=since)
    return draft.now - since >= last_call


def _first_world(draft: Draft) -> None:
    """Form the first world when all launched members have joined, or enough of them in time."""
    state = draft.state
    spec = state.spec
    assert state.launched_at is not None
    if _newcomers_cannot_wait(draft):
        settle_for_restarts(draft)
        return
    began = max(state.launched_at, state.started_at)
    waited = draft.now - began
    # still starting, or on their way back; the newest are the last to come
    pending = any(not _is_present(member) for member in reversed(state.members.values()))
    if pending and waited < spec.start_timeout:
        return
    present = [member for member in state.members.values() if _is_present(member)]
    if len(present) >= spec.min_np and (waited >= spec.start_timeout or not pending):
        formation.form(draft, present)
    elif not present and waited >= spec.start_timeout and state.mode is not Mode.ELASTIC:
        settle_for_restarts(draft)
    elif waited >= _patience(spec) or (not pending and _nobody_can_come(draft, began)):
        fail(
            draft,
            f"{counted(spec.min_np, 'member')} needed to start, {len(present)} came up within "
            f"{waited:.0f} s ({hosts.describe_capacity(state, draft.now)})",
        )
    elif not pending:  # too many died: start others where that is possible
        launch(draft, state.wanted - len(present))


def _newcomers_cannot_wait(draft: Draft) -> bool:
    """Under torchrun's rules, whoever comes before anybody has called Midflight starts all anew.

    What the others have done so far is no more than what they do at each start.
    """
    state = draft.state
    wants_more = len(state.members) < state.wanted
    return _may_restart(state) and wants_more and bool(hosts.free_slots(state, draft.now))


def settle_if_restarted(draft: Draft) -> None:
    """A host leaves before anybody has called Midflight: under torchrun's rules all start anew.

    Otherwise its workers would be killed at the end of the notice, without a signal before.
    """
    if _may_restart(draft.state) and draft.state.members:
        settle_for_restarts(draft)


def _may_restart(state: State) -> bool:
    unknown = state.mode is Mode.UNKNOWN and state.phase is Phase.STARTING
    return state.spec.dialect.max_restarts is not None and unknown


def _is_present(member: MemberState) -> bool:
    return member.connected and member.stage is Stage.JOINED


def _nobody_can_come(draft: Draft, began: float) -> bool:
    return hosts.all_cool_until(draft.state, began + _patience(draft.state.spec))


def _patience(spec: JobSpec) -> float:
    """How long a job may take to come up at all."""
    return max(spec.start_timeout, spec.elastic_timeout)


def settle_for_restarts(draft: Draft) -> None:
    """Nobody has called Midflight: treat the processes as a world that can only be restarted."""
    state = draft.state
    members = tuple(member.member for member in state.members.values())
    draft.set(
        mode=Mode.RESTART,
        generation=state.generation + 1,
        world=World(state.generation + 1, members),
    )
    draft.set_members([member.name for member in members], stage=Stage.ACTIVE)
    draft.enter(Phase.STABLE, "the script does not call Midflight: it is restarted at each change")


def settle_for_elastic(draft: Draft) -> None:
    """One of them calls Midflight after all, only late: the first world has yet to be formed."""
    draft.set(mode=Mode.ELASTIC, world=None, launched_at=draft.now, suspicion=None, stalls=0)
    draft.set_members(draft.state.members, stage=Stage.STARTING)
    draft.enter(Phase.STARTING)
