"""The way of a member from world to world: at a boundary it does what is due.

One driver serves sessions (`mf.join`), programs of other systems (`standing`) and the simulation.
It asks the membership what is due, enters worlds, waits where there is none, and sees training out
at its end. What a member brings into a world and takes over there is its trainer's (`enter`).

These are coroutines so that the simulation can run this very code on its own clock. In a training
process they block where they wait, and never suspend: `block` runs them like any function.
"""

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from midflight import terminal
from midflight.errors import GivenUp, MidflightError
from midflight.protocol.messages import MemberPaused
from midflight.runtime.group.process_group import (
    SHARED_GPU,
    Group,
    explain,
    is_communication_error,
)
from midflight.runtime.membership.member import Dismissed, Enter, Leave, Membership, Order, Trainer
from midflight.runtime.membership.pauses import Pauses

T = TypeVar("T")


class Entrant(Trainer, Protocol):
    """Whoever goes from world to world."""

    async def enter(self, order: Enter) -> None:
        """Agree with the members of this world, whose group is connected, on the state.

        Raises WorldChanged, or what torch raises, if one of them is lost meanwhile.
        """

    def dismissed(self) -> None:
        """The others go on without this member."""


class Driver:
    def __init__(
        self, trainer: Entrant, group: Group, membership: Membership | None = None
    ) -> None:
        """`membership`: None in a process that belongs to no job."""
        self.membership = membership
        self.group = group  # of the present world
        self.broken = False  # a collective of this world has failed
        self.pending: Order | None = None  # found due by `look`, and not done yet
        self._trainer = trainer
        self._left: list[Group] = []  # of worlds before this one
        self._pauses = Pauses()
        self._warned = False

    @property
    def is_first_left(self) -> bool:
        """Whether, after training, what is done once for all is up to this member."""
        return self.membership is not None and self.membership.is_first

    def is_due(self) -> bool:
        """Whether something is to be done before the next step; costs next to nothing if not."""
        membership = self.membership
        return membership is not None and (
            self.broken or membership.due or not membership.begin_step(self._trainer.steps_done)
        )

    async def look(self) -> bool:
        """Whether there is a change before the next step; `change` carries it out."""
        if self.membership is None or not self.is_due():
            return False
        self.pending = await self.membership.next_order(self._trainer.steps_done)
        return self.pending is not None

    async def settle(self) -> None:
        """Do all that is due before the next step."""
        while await self.change() is not None:
            continue

    async def change(self) -> Enter | None:
        """Go over to the next world, however long it takes to form; None: this one is whole.

        Ends the process (SystemExit) when the others go on without this member, raises GivenUp
        when the job cannot go on.
        """
        membership = self.membership
        if membership is None:
            self.broken = False
            return None
        while True:
            order, self.pending = self.pending, None
            order = order or await membership.next_order(self._trainer.steps_done)
            match order:
                case None:
                    return None
                case Enter():
                    if await self._enter(membership, order):
                        return order
                case Leave(generation):
                    membership.say_settled(generation)
                case Dismissed(reason):
                    if order.failed:
                        raise GivenUp(reason)
                    membership.say_settled(self.group.generation)  # its last step, too
                    self._trainer.dismissed()
                    raise SystemExit(0)

    async def _enter(self, membership: Membership, order: Enter) -> bool:
        """False: somebody was lost meanwhile, and the next order will name another world."""
        group = order.coming.group
        self._pauses.ordered(membership.now(), planned=order.planned)
        try:
            await order.coming.wait()
            self._pauses.connected(membership.now())
            await self._trainer.enter(order)
            self._pauses.agreed(membership.now())
        except (MidflightError, RuntimeError) as error:
            if not is_communication_error(error, group):
                group.cut()  # else the group would hold up the end of this process
                raise
            self._report(membership, group, error)
            return False
        self._left.append(self.group)
        self.group = group
        self.broken = False
        membership.entered(group)
        return True

    def broke(self, error: BaseException, group: Group | None = None) -> None:
        """A collective of this world (or of that group) has failed; a change is due."""
        group = group or self.group
        if group is self.group:
            self.broken = True
        if self.membership is not None:
            self._pauses.noticed(self.membership.now())
            self._report(self.membership, group, error)

    def _report(self, membership: Membership, group: Group, error: BaseException) -> None:
        """The coordinator shows the first reason that it hears, which may be another member's."""
        reason = explain(error)
        if reason.startswith(SHARED_GPU) and not self._warned:
            self._warned = True
            terminal.say(f"warning: {SHARED_GPU}")
        membership.broke(group, self._trainer.steps_done, reason)

    def stepped(self) -> None:
        """A step of this world is through, so all have left those before it: they are let go."""
        for group in self._left:
            group.retire()
        self._left.clear()
        membership = self.membership
        if membership is not None and (found := self._pauses.stepped(membership.now())):
            planned, pause = found
            generation, step = self.group.generation, self._trainer.steps_done
            membership.link.send(MemberPaused(generation, step, planned, pause))

    async def finish(self, *, stay: bool) -> None:
        """Training is complete here: wait until it is complete everywhere.

        `stay`: enter the worlds that form meanwhile, to hand the state on; otherwise the first of
        them goes on without this member.
        """
        membership = self.membership
        if membership is None:
            return
        membership.finish()
        while True:
            order, self.pending = self.pending, None
            order = order or await membership.next_order(self._trainer.steps_done, idle=True)
            match order:
                case Enter() if stay:
                    await self._enter(membership, order)
                    membership.finish()
                case Leave(generation):
                    membership.say_settled(generation)
                case Dismissed(reason, failed=True):
                    raise GivenUp(reason)
                case _:
                    return

    def close(self) -> None:
        if self.membership is not None:
            self.membership.close()
        for group in (*self._left, self.group):
            group.close()


def block(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that blocks where it waits, as all do in a training process."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine} has suspended: nobody would wake it")
