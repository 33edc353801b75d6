"""Starting: the first members of a job.

The job starts when there are slots for the wanted number of members, or, once the start timeout
has passed, for the minimum; the rest joins as slots appear.
"""

from midflight.coordinator.core import forming, hosts
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.ending import fail
from midflight.coordinator.core.placing import launch
from midflight.coordinator.core.state import Mode, Phase, Stage
from midflight.protocol.world import World


def begin(draft: Draft) -> None:
    """In STARTING: launch the first members once there is room for them."""
    state = draft.state
    if state.launched_at is not None:
        _first_world(draft)
        return
    room = len(hosts.free_slots(state, draft.now))
    late = draft.now - state.started_at >= state.spec.start_timeout
    if room >= state.wanted or (late and room >= state.spec.min_np):
        count = min(room, state.wanted)
        draft.set(launched_at=draft.now)
        launch(draft, count, ranked=True)
        draft.say(f"starting {count} of {state.wanted} wanted members", "debug")
    elif draft.now - state.started_at >= state.spec.elastic_timeout:
        fail(
            draft,
            f"slots for {state.spec.min_np} members were wanted, {room} were found within "
            f"{state.spec.elastic_timeout:g} s ({hosts.describe_capacity(state, draft.now)})",
        )


def _first_world(draft: Draft) -> None:
    """Form the first world when all launched members have joined, or enough of them in time."""
    state = draft.state
    present = [m for m in state.members.values() if m.connected and m.stage is Stage.JOINED]
    pending = [m for m in state.members.values() if m.stage is Stage.STARTING]
    assert state.launched_at is not None
    late = draft.now - max(state.launched_at, state.started_at) >= state.spec.start_timeout
    if len(present) >= state.spec.min_np and (late or not pending):
        forming.form(draft, present)
    elif late and pending and not present and state.mode is not Mode.ELASTIC:
        settle_for_restarts(draft)
    elif not pending and len(present) < state.spec.min_np:
        _refill(draft, len(present))


def _refill(draft: Draft, present: int) -> None:
    """Too many died before the first world: start others where that is possible."""
    missing = draft.state.wanted - present
    if not launch(draft, missing) and (
        draft.now - draft.state.started_at >= draft.state.spec.elastic_timeout
    ):
        fail(
            draft,
            f"{draft.state.spec.min_np} members are needed to start, {present} came up within "
            f"{draft.state.spec.elastic_timeout:g} s",
        )


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
