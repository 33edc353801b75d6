"""Standing: this process's membership, for programs that drive their own training loop.

`Session` owns a script's steps and its state. Programs written for another system own both, and
ask for three things only: which world is this, has a change become due, and take me over into the
next one. A boundary is a place in the program that every member passes equally often; a planned
change is due at the same count on all of them, so nobody has to ask the others. What is carried to
newcomers is the caller's business: `change` says who is furthest.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from midflight import leaving
from midflight.errors import GivenUp, WorldChanged
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.world import ALONE, World
from midflight.rundir import read_token
from midflight.runtime import torch_private
from midflight.runtime.group.keystore import KeyLine
from midflight.runtime.group.process_group import Group, is_communication_error
from midflight.runtime.membership.member import Dismissed, Enter, Leave, Membership, Order
from midflight.runtime.state.claims import NOTHING
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout
from midflight.runtime.state.terms import Terms


@dataclass(frozen=True)
class Change:
    """What a member finds when it has entered a world."""

    planned: bool  # False: somebody was lost, or it is the first world
    versions: tuple[int, ...]  # by rank, how far the members are; NOTHING: a newcomer
    torn: bool  # some member did not come from a boundary: what it was doing is unknown
    before: World | None  # None: this member was in no world yet

    @property
    def root(self) -> int:
        """The first of those who are furthest: its state is the job's."""
        return self.versions.index(max(self.versions))

    @property
    def behind(self) -> tuple[int, ...]:
        """The ranks that lack the newest state."""
        best = max(self.versions)
        return tuple(rank for rank, version in enumerate(self.versions) if version < best)


class Standing:
    def __init__(self, environ: Mapping[str, str] = os.environ, backend: str = "gloo") -> None:
        """`backend`: gloo or nccl, of the groups of all worlds."""
        torch_private.check()
        self.env = WorkerEnv.from_env(environ)
        self.newcomer = self.env is not None and self.env.joiner
        self.arrived = False
        self.world = ALONE
        self.group = Group(ALONE, "m0", backend)
        self.waiting = False
        # --- what the membership asks of its trainer
        self.holdings = Holdings({})
        self.backends: tuple[str, ...] = (backend,)
        self.holds_state = False
        self.steps_done = 0
        self._order: Order | None = None
        self._retired: Group | None = None
        self._membership: Membership | None = None
        if self.env is not None:
            secret = read_token(Path(self.env.token_file))
            self._membership = Membership(self.env, secret, backend, self)

    @property
    def rank(self) -> int:
        if self.env is not None and not self.arrived:
            return self.env.rank
        return self.group.rank

    @property
    def size(self) -> int:
        if self.env is not None and not self.arrived:
            return max(self.env.size, self.env.rank + 1)
        return self.group.size

    @property
    def keys(self) -> KeyLine | None:
        """For further groups within the present world."""
        return self._membership.link if self._membership is not None else None

    # --- coming -----------------------------------------------------------------------------

    def arrive(self, version: int = NOTHING) -> Change | None:
        """Dial in, and block until this member is in a world. None: it has been in one before."""
        if self.arrived:
            return None
        self.arrived = True
        if self._membership is None:
            return Change(planned=False, versions=(version,), torn=False, before=None)
        assert self.env is not None
        self._membership.leave_on_sigterm(self.env.grace)
        self._membership.link.start()
        change = self.change(version)
        self.newcomer = False
        return change

    # --- changes of the world ---------------------------------------------------------------

    def count(self) -> None:
        """One boundary more, at which nothing is due; the caller finds changes its own way."""
        self.steps_done += 1
        self._let_go()

    @property
    def announced(self) -> bool:
        """Whether a planned change has been heard of here."""
        return self._membership is not None and self._membership.announced

    def boundary(self) -> bool:
        """Counts one. True: a change is due here, on every member; `change` carries it out."""
        if self._membership is None or not self.arrived:
            return False
        self.count()
        if not self._membership.due and self._membership.begin_step(self.steps_done):
            return False
        self._order = self._membership.next_order(self.steps_done)
        return self._order is not None

    @property
    def planned(self) -> bool:
        """Whether the change that is due was planned: then nobody has been lost."""
        return not isinstance(self._order, Enter) or self._order.planned

    @property
    def newcomers_come(self) -> bool:
        """Whether the change that is due brings members that are not here yet."""
        if not isinstance(self._order, Enter):
            return False
        return bool(set(self._order.coming.world.names) - set(self.world.names))

    def broke(self, error: BaseException, group: Group | None = None) -> None:
        """A collective of this world (or of that group) failed; a change is due."""
        if self._membership is not None:
            self._membership.broke(group or self.group, self.steps_done, str(error))

    def change(self, version: int = 0) -> Change:
        """Go over to the next world, however long it takes to form.

        `version`: how far this member's state is, in the caller's own count. Ends the process
        (SystemExit) when this member leaves, raises GivenUp when the job cannot go on.
        """
        membership = self._membership
        if membership is None:
            return Change(planned=False, versions=(version,), torn=True, before=self.world)
        before = self.world if self.holds_state else None
        torn = self.holds_state and self._order is None
        while True:
            order, self._order = self._order or membership.next_order(self.steps_done), None
            match order:
                case Enter():
                    answers = self._enter(membership, order, [version, self.steps_done, torn])
                    if answers is not None:
                        versions = tuple(answer[0] for answer in answers)
                        torn = any(answer[2] for answer in answers)
                        return Change(order.planned, versions, torn, before)
                case Leave(generation):
                    membership.say_settled(generation)
                case Dismissed(reason, failed):
                    if failed:
                        raise GivenUp(reason)
                    leaving.dismiss()
                    raise SystemExit(0)
                case None:  # the world is whole: what broke was not the group
                    versions = tuple(v for (v,) in self.group.gather([version]))
                    return Change(False, versions, True, before)

    def _enter(
        self, membership: Membership, order: Enter, words: list[int]
    ) -> list[list[int]] | None:
        """Everybody's words; None if somebody was lost meanwhile, and another world comes."""
        group = order.coming.group
        try:
            order.coming.wait()
            answers = group.gather(words)
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, group):
                raise
            membership.broke(group, self.steps_done, str(error))
            return None
        self._let_go()
        self._retired, self.group, self.world = self.group, group, group.world
        self.steps_done = max(answer[1] for answer in answers)
        self.holds_state = True
        membership.entered(group)
        return answers

    def _let_go(self) -> None:
        """Of the world before this one: by the next boundary all others have left it."""
        old, self._retired = self._retired, None
        if old is not None:
            old.retire()

    # --- going ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Training is complete here: stay until it is complete everywhere, or somebody is lost."""
        membership = self._membership
        if membership is None or not self.arrived:
            return
        membership.finish()
        while True:
            order, self._order = (
                self._order or membership.next_order(self.steps_done, idle=True),
                None,
            )
            if isinstance(order, Leave):
                membership.say_settled(order.generation)
            elif isinstance(order, Dismissed) and order.failed:
                raise GivenUp(order.reason)
            else:  # dismissed, or a world of those who go on without this member
                return

    def close(self) -> None:
        if self._membership is not None and self.arrived:
            self._membership.link.close()
        for group in (self._retired, self.group):
            if group is not None:
                group.close()

    # --- asked by the threads of the membership ----------------------------------------------

    @property
    def horizon(self) -> int:
        return self.steps_done

    def foresee(self, step: int, world: World) -> None:
        """Nothing is read ahead here."""

    def terms(self) -> Terms:
        """What the members have in common is the program's business."""
        return Terms()

    def ask_for_layout(self) -> None:
        """There is nothing to be looked at."""

    def layout(self) -> Layout:
        return self.holdings.capture({}).layout
