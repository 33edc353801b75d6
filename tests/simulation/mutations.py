"""Faults that were mended, put back one at a time: the simulation has to find each of them.

A mutation replaces a few functions of the real code (in two cases of the simulated training, which
stands for what cannot run here) by what they once did, or by nothing. `bite` runs seeds with it up
to the first finding.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from midflight.agent.outbox import Outbox
from midflight.coordinator import shell
from midflight.coordinator.core import (
    arrivals,
    departures,
    job_end,
    leavers,
    liveness,
    resize,
    restarts,
)
from midflight.coordinator.core.commands import Start
from midflight.coordinator.core.departures import KILLED, gone
from midflight.coordinator.core.draft import Draft
from midflight.coordinator.core.state import Change, ChangeStage, MemberState, Mode
from midflight.coordinator.core.switch_step import step_in_flight
from midflight.coordinator.saved_state import Saving
from midflight.coordinator.shell import Shell
from midflight.errors import GivenUp, StoreError, WorldChanged
from midflight.protocol.handshake import FrameMac
from midflight.protocol.wire import Protection, body_length
from midflight.protocol.world import World
from midflight.run import coordinator as keeper
from midflight.runtime.membership.member import Membership, Order
from midflight.runtime.membership.next_world import Coming
from midflight.runtime.state import agreement
from midflight.runtime.state.claims import Claim, Outcome, settle
from tests.simulation import member
from tests.simulation.group import SimGroup
from tests.simulation.shrinking import Story, stories

Patch = tuple[object, str, object]


@dataclass(frozen=True)
class Mutation:
    fault: str
    patches: tuple[Patch, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for target, name, value in self.patches:
                stack.enter_context(patch.object(target, name, value))
            yield


@dataclass(frozen=True)
class Bite:
    story: Story | None  # of the first seed with a finding
    seeds: int
    events: int


def bite(mutation: Mutation, seeds: Iterable[int], jobs: int = 1) -> Bite:
    count = events = 0
    with mutation.applied(), stories(seeds, jobs) as told:
        for story in told:
            count += 1
            events += story.outcome.events
            if story.outcome.findings:
                return Bite(story, count, events)
    return Bite(None, count, events)


def _nothing(*_: object, **__: object) -> None:
    """Where something was added to mend a fault."""


# --- the coordinator --------------------------------------------------------------------------


def _stuck(draft: Draft) -> None:
    """Without a look at who has settled."""
    forming = draft.state.forming
    names = [] if forming is None else [m.name for m in draft.state.named(forming.world)]
    stuck = [
        name
        for name in names
        if forming is not None and draft.state.members[name].waiting
        if draft.now - max(forming.began_at, draft.state.members[name].moved_at) > 5.0
    ]
    if stuck and len(stuck) < len(names):
        gone(draft, stuck, KILLED, "a collective of the last world never ended there")


def _end_after_grace(draft: Draft) -> None:
    """Whatever they have to do after training."""
    for leaver in tuple(draft.state.members.values()):
        if leavers.is_late(draft, leaver):
            draft.stop(leaver)
            gone(draft, [leaver.name], KILLED, "it did not end within the grace")


def _beyond_prefetched(
    members: list[MemberState], best: int, now: float, until: float | None = None
) -> int:
    horizon = max((m.horizon for m in members), default=0)
    return max(step_in_flight(members, best, now), horizon) + 1


_check_deadline = resize.check_deadline


def _fail_at_deadline(draft: Draft) -> None:
    """Also what is being switched to already."""
    change: Change | None = draft.state.change
    switching = change is not None and change.stage is ChangeStage.SWITCHING
    if change is not None and switching and draft.now >= change.request.deadline:
        draft.answer(change.request, False, "it was not done in time")
        silent = replace(change.request, ticket=None, id="", deadline=draft.now + 3600.0)
        draft.set(change=replace(change, request=silent))
    _check_deadline(draft)


_job_exit_code = keeper.job_exit_code


def _any_code_ends(code: int, saved: Any, served: bool) -> int | None:
    return code if code >= 0 else _job_exit_code(code, saved, served)


_save = Saving.save


def _save_and_keep(self: Any, state: Any, now: float) -> None:
    """What may have arrived is kept, for comparison."""
    try:
        _save(self, state, now)
    except StoreError:
        self._unsure = [*getattr(self, "_unsure", []), state]
        raise


def _save_over(self: Any, state: Any, now: float) -> None:
    """Whatever is there by now."""
    entry = self._store.peek(self._key)
    self._version = 0 if entry is None else entry.version
    _save(self, state, now)


# --- members ----------------------------------------------------------------------------------

_meet_all, _on_form, _pending = SimGroup.meet_all, Membership._on_form, Membership.pending


async def _unreduced(self: SimGroup, value: Any) -> list[Any]:
    """A broken all-reduce of gradients ends without an error."""
    try:
        return await _meet_all(self, value)
    except WorldChanged:
        if isinstance(value, tuple):
            return [value]
        raise


def _enter_twice(self: Any, world: World) -> None:
    entering, self._entering = self._entering, None
    _on_form(self, world)
    self._entering = entering


def _pending_of_now(self: Any) -> object:
    """What broke on the way into a world is not said again."""
    entering, self._entering = self._entering, None
    said = _pending(self)
    self._entering = entering
    return said


async def _spin(self: Any, step: int, *, idle: bool = False) -> Order | None:
    """Whoever is idle has waited for long enough, and looks again at once."""
    self._idle = idle
    deadline = time.monotonic() + 2 * self._env.elastic_timeout
    while True:
        order: Order | None = self._due_now(step)
        if order is not None:
            return order
        if self._in_valid_world() and not idle:
            self.due, self._begun = self._switch is not None, step
            return None
        heard = await self._wait_for_news(max(0.0, deadline - time.monotonic()))
        if not heard and not idle:
            raise GivenUp("no world has named this member")


def _steps_only(claims: list[Claim]) -> Outcome:
    return settle([replace(claim, generation=0, digest=0, checksum=0) for claim in claims])


def _without_generation(claims: list[Claim]) -> Outcome:
    return settle([replace(claim, generation=0) for claim in claims])


def _say_once(self: Any) -> None:
    self._sent.clear()
    self._sent_characters = self._beats_sent = self._beats_heard = 0


def _read_length(self: Any, head: bytes) -> int:
    """Whatever length is too large is a misunderstanding, and not somebody on the way."""
    return body_length(head, self.limit) + int(self.tag_size)


# --- scripts that never call Midflight ----------------------------------------------------------

_hung_up, _stop, _suspect, _gone = (
    liveness.host_hung_up,
    Draft.stop,
    restarts._suspect,
    departures.gone,
)


def _hang_up_is_death(draft: Draft, name: str, *, dead: bool) -> None:
    """Where the members hold no state."""
    _hung_up(draft, name, dead=dead or draft.state.mode is not Mode.ELASTIC)


def _stop_at_once(
    self: Draft, member: MemberState, grace: float = 0.0, *, durable: bool = False
) -> None:
    _stop(self, member, grace)


def _excuse_nobody(draft: Draft, detail: str, patience: float, blameless: bool) -> None:
    own_rules = draft.state.spec.dialect.max_restarts is None
    _suspect(draft, detail, patience, blameless and not own_rules)


def _forget_failures(draft: Draft) -> bool:
    """Whether all who are left have finished; whoever failed a moment ago does not count."""
    finished = all(member.finished for member in draft.state.members.values())
    if finished:
        draft.set(suspicion=None)
    return finished


async def _new_port(self: Shell, command: Start) -> int:
    """Each time, and a start is lost if the agent that is asked hangs up."""
    first = command.world.members[0].host if command.world else ""
    try:
        async with asyncio.timeout(5.0):
            return await self.peers.find_port(first)
    except TimeoutError:
        return 29500
    except KeyError:
        raise asyncio.CancelledError from None


def _gone_by_itself(*args: Any, blameless: bool = False) -> None:
    _gone(*args)


MUTATIONS = {
    "pause": Mutation(
        "A paused or cut-off coordinator gives everybody up",
        (
            (liveness, "excuse_own_pause", _nothing),
            (liveness, "_excuse_silence_of_all", _nothing),
            (liveness, "_others_can_go_on", lambda *_: True),
        ),
    ),
    "stuck": Mutation(
        "Members that settled early count as stuck while others receive the state",
        ((liveness, "_stuck", _stuck),),
    ),
    "tail": Mutation(
        "A script that runs on after training is killed after the grace",
        ((leavers, "watch", _end_after_grace),),
    ),
    "unreduced": Mutation(
        "A broken all-reduce ends without an error, and the step is counted (simulated step)",
        ((SimGroup, "meet_all", _unreduced),),
    ),
    "prefetch": Mutation(
        "A planned change, a notice too, waits for all that was prefetched",
        ((resize, "switch_step", _beyond_prefetched), (resize, "_hurry", _nothing)),
    ),
    "unpackable": Mutation(
        "A state that cannot be packed raises in those who are in training",
        (
            (agreement, "try_capture", lambda capture: capture()),
            (member, "try_capture", lambda capture: capture()),
        ),
    ),
    "steps": Mutation(
        "The agreement compares step numbers only", ((agreement, "settle", _steps_only),)
    ),
    "generation": Mutation(
        "Claims do not tell in which generation the last step was completed",
        ((agreement, "settle", _without_generation),),
    ),
    "plan": Mutation("Plans are not compared", ((agreement, "are_equal", lambda _: True),)),
    "backend": Mutation(
        "Each member chooses its backend by itself", ((Coming, "_agree_on_backend", _nothing),)
    ),
    "over": Mutation(
        "A coordinator killed between `Over` and saving the next world tells nobody anything",
        ((arrivals, "_end_again", _nothing),),
    ),
    "spin": Mutation(
        "A member that has finished spins after twice the elastic timeout",
        ((Membership, "next_order", _spin),),
    ),
    "unsure": Mutation(
        "Saves that may have arrived are kept while the store is away",
        ((Saving, "save", _save_and_keep),),
    ),
    "raises": Mutation(
        "A coordinator that raises ends the job", ((keeper, "job_exit_code", _any_code_ends),)
    ),
    "alone": Mutation(
        "A healthy world is cut when there is no coordinator for the elastic timeout",
        ((Membership, "need", lambda self: "a coordinator"),),
    ),
    "last_step": Mutation(
        "The last step that is saved is stale", ((job_end, "_note_last_step", _nothing),)
    ),
    "deadline": Mutation(
        "A request fails at its deadline although the switch step is published",
        ((resize, "check_deadline", _fail_at_deadline),),
    ),
    "second": Mutation(
        "A second coordinator writes over what the living one has saved",
        ((Saving, "save", _save_over),),
    ),
    "twice": Mutation(
        "A world that is announced again is entered twice",
        ((Membership, "_on_form", _enter_twice),),
    ),
    "unheard": Mutation(
        "A break on the way into a world that nobody heard is not said again",
        ((Membership, "pending", _pending_of_now),),
    ),
    "remind": Mutation(
        "A coordinator reminds nobody after a reconnect", ((arrivals, "_remind", _nothing),)
    ),
    "leaver": Mutation(
        "The state of a leaver counts although the others have gone on",
        ((liveness, "left_behind", lambda *_: ()),),
    ),
    "outbox": Mutation(
        "An agent's outbox says nothing again", ((Outbox, "reconnected", _say_once),)
    ),
    "hang_up": Mutation(
        "A broken connection of an agent counts as the death of its members",
        ((liveness, "host_hung_up", _hang_up_is_death),),
    ),
    "stop": Mutation(
        "Members are stopped before the store knows that they are to be restarted",
        ((Draft, "stop", _stop_at_once),),
    ),
    "end": Mutation(
        "Agents are told of the end before the store is", ((shell, "STORE_FIRST", 0.0),)
    ),
    "port": Mutation(
        "Members that are started again are to meet elsewhere than the others",
        ((Shell, "_port", _new_port),),
    ),
    "killed": Mutation(
        "A job fails if one is killed and the others fail because of that",
        ((restarts, "_suspect", _excuse_nobody),),
    ),
    "success": Mutation(
        "A job succeeds if the others end right after a failure",
        ((restarts, "_all_finished", _forget_failures),),
    ),
    "finished": Mutation(
        "The loss of a host where all have finished restarts the others",
        ((departures, "_has_ended", lambda *_: False),),
    ),
    "replaced": Mutation(
        "An agent that is replaced at once counts as a failure of its members",
        ((departures, "gone", _gone_by_itself),),
    ),
    "mac": Mutation("Frames are believed without a MAC", ((FrameMac, "check", _nothing),)),
    "length": Mutation(
        "A member gives up if the length of a frame was changed on the way",
        ((Protection, "rest_length", _read_length),),
    ),
}
