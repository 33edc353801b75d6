"""Standing: this process's membership, for programs that own their training loop and their state.

Programs written for another system ask for three things only: which world is this, has a change
become due, and take me over into the next one. A boundary is a place in the program that every
member passes equally often; a planned change is due at the same count on all of them, so nobody
has to ask the others. What is carried to newcomers is the caller's business: `change` says who is
furthest.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from midflight import leaving
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import MemberLogged
from midflight.protocol.world import ALONE, World
from midflight.rundir import read_token
from midflight.runtime import torch_private
from midflight.runtime.group.keystore import KeyLine
from midflight.runtime.group.process_group import Group
from midflight.runtime.membership.driver import Driver, block
from midflight.runtime.membership.member import Enter, Membership
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
        # --- what the membership asks of its trainer
        self.holdings = Holdings({})
        self.backends: tuple[str, ...] = (backend,)
        self.holds_state = False
        self.steps_done = 0
        self.waiting = False
        self.samples_done = 0  # whoever owns the loop knows
        self._words = (NOTHING, False)  # what this member says as it enters: version and torn
        self._answers: list[list[int]] = []  # everybody's: version, steps and torn, by rank
        self._driver = Driver(self, Group(ALONE, "m0", backend))
        if self.env is not None:
            secret = read_token(Path(self.env.token_file))
            self._driver.membership = Membership(self.env, secret, backend, self)

    @property
    def group(self) -> Group:
        return self._driver.group

    @property
    def world(self) -> World:
        return self._driver.group.world

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
        membership = self._driver.membership
        return membership.link if membership is not None else None

    @property
    def is_encrypted(self) -> bool:
        """Whether the job's connections are."""
        membership = self._driver.membership
        return membership is not None and membership.link.is_encrypted

    # --- coming -----------------------------------------------------------------------------

    def arrive(self, version: int = NOTHING) -> Change | None:
        """Dial in, and block until this member is in a world. None: it has been in one before."""
        if self.arrived:
            return None
        self.arrived = True
        if self._driver.membership is None:
            return Change(planned=False, versions=(version,), torn=False, before=None)
        self._driver.membership.start()
        change = self.change(version)
        self.newcomer = False
        return change

    # --- changes of the world ---------------------------------------------------------------

    def count(self) -> None:
        """One boundary more, at which nothing is due; the caller finds changes its own way."""
        self.steps_done += 1
        self._driver.stepped()

    def log(self, values: dict[str, float | None]) -> None:
        """Into the record of the run, with the boundaries counted so far."""
        if (membership := self._driver.membership) is not None:
            membership.link.send(MemberLogged(self.steps_done, 0, values))

    @property
    def announced(self) -> bool:
        """Whether a planned change has been heard of here."""
        membership = self._driver.membership
        return membership is not None and membership.announced

    def boundary(self) -> bool:
        """Counts one. True: a change is due here, on every member; `change` carries it out."""
        if self._driver.membership is None or not self.arrived:
            return False
        self.count()
        return block(self._driver.look())

    @property
    def planned(self) -> bool:
        """Whether the change that is due was planned: then nobody has been lost."""
        order = self._driver.pending
        return not isinstance(order, Enter) or order.planned

    @property
    def newcomers_come(self) -> bool:
        """Whether the change that is due brings members that are not here yet."""
        order = self._driver.pending
        if not isinstance(order, Enter):
            return False
        return bool(set(order.coming.world.names) - set(self.world.names))

    def broke(self, error: BaseException, group: Group | None = None) -> None:
        """A collective of this world (or of that group) failed; a change is due."""
        self._driver.broke(error, group)

    def change(self, version: int = 0) -> Change:
        """Go over to the next world, however long it takes to form.

        `version`: how far this member's state is, in the caller's own count. Ends the process
        (SystemExit) when this member leaves, raises GivenUp when the job cannot go on.
        """
        if self._driver.membership is None:
            return Change(planned=False, versions=(version,), torn=True, before=self.world)
        before = self.world if self.holds_state else None
        self._words = (version, self.holds_state and self._driver.pending is None)
        order = block(self._driver.change())
        if order is None:  # the world is whole: what broke was not the group
            versions = tuple(v for (v,) in self.group.gather([version]))
            return Change(False, versions, True, before)
        versions = tuple(answer[0] for answer in self._answers)
        torn = any(answer[2] for answer in self._answers)
        return Change(order.planned, versions, torn, before)

    async def enter(self, order: Enter) -> None:
        """Everybody says how far it is."""
        version, torn = self._words
        self._answers = order.coming.group.gather([version, self.steps_done, torn])
        self.steps_done = max(answer[1] for answer in self._answers)
        self.holds_state = True

    def dismissed(self) -> None:
        leaving.dismiss()

    # --- going ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Training is complete here: stay until it is complete everywhere, or somebody is lost."""
        if self.arrived:
            block(self._driver.finish(stay=False))

    def close(self) -> None:
        self._driver.close()

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

    def layout(self, group: Group) -> Layout:
        return self.holdings.capture({}).layout
