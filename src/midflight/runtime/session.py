"""Session: this process's membership of a job, from coming to going.

It drives the pieces of this package in the training thread: at each step boundary it settles what
is due (`membership`), and agrees on the state with the members of a new world (`agreement`). What
a script does between two boundaries is `job.Job`'s.
"""

import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import torch
from torch import nn

from midflight import leaving
from midflight.errors import GivenUp, MidflightError, StateError, WorldChanged
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import MemberFailed
from midflight.protocol.world import ALONE, World
from midflight.rundir import read_token
from midflight.runtime import torch_private
from midflight.runtime.data.feed import Feed
from midflight.runtime.data.ledger import Ledger
from midflight.runtime.data.plan import Cursor, Seat
from midflight.runtime.data.sampler import Issued
from midflight.runtime.data.schedule import Schedule
from midflight.runtime.gradients.ddp import GradientSync
from midflight.runtime.gradients.deterministic import ExactSync
from midflight.runtime.group.process_group import Group, is_communication_error
from midflight.runtime.membership.member import Dismissed, Enter, Leave, Membership
from midflight.runtime.state import checkpoint
from midflight.runtime.state.agreement import Standpoint, agree, compare_terms, try_capture
from midflight.runtime.state.equality import Equality
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout, Snapshot
from midflight.runtime.state.terms import Terms
from midflight.runtime.state.values import Values

LAYOUT_SECONDS = 600.0  # how long a preparation waits for the next step boundary


class Session:
    """Everything about being a member; what is trained is the subclass's business."""

    def __init__(
        self,
        objects: Mapping[str, Any],
        *,
        backend: str | None,
        ddp: Mapping[str, Any] | Literal[False],
        resume: str | os.PathLike[str] | None = None,
        deterministic: int | None = None,
        verify_every: int | None = None,
    ) -> None:
        torch_private.check()
        plain: dict[str, Any] = {}
        self._values = Values(plain)
        self.holdings = Holdings(objects, plain)
        modules = {n: o for n, o in objects.items() if isinstance(o, nn.Module)}
        synced = {} if ddp is False else modules
        self._sync: GradientSync | ExactSync = GradientSync(synced, ddp or {}, self._break)
        if deterministic is not None:
            self._sync = ExactSync(modules, deterministic)
        self.backends = (backend,) if backend else _usable_backends(modules)
        self._options = {
            "deterministic": deterministic,
            "ddp": ddp is not False,
            "verify_every": verify_every,
        }
        self._equality = Equality(verify_every)
        self._plan: Mapping[str, Any] | None = None  # of the data, as the script asked for it
        self._resume = Path(resume) if resume is not None else None
        self._env = WorkerEnv.from_env(os.environ)
        self.cursor = Cursor()
        self._trained_in = 0  # the generation in which the last step was completed
        self.schedule = Schedule(Seat(0, 0, 1))
        self.holds_state = False
        self.waiting = False  # in a collective; told with the heartbeats
        self._world = ALONE
        self._group: Group | None = None
        self._membership: Membership | None = None
        self._ledger = Ledger("", "")
        self._feeds: list[Feed] = []
        self._issued: Issued | None = None
        self._broken = False  # a collective of this world has failed
        self._dismissed = False  # the others go on without this member
        self._awaited = False  # the others do not know of this member yet
        self._rehearsing = False  # the script is in a step that does not count
        self.overtaken = False  # the others are past the epoch that the script is at the end of
        self._retiring: list[Group] = []
        self._layout_wanted = threading.Event()
        self._layout_made = threading.Event()
        self._layout: Layout | StateError | None = None  # or why there can be none

    # --- coming and going -------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._resume is not None:
            self._adopt(checkpoint.load(self._resume, self.holdings))
        if self._env is None:
            self._enter_alone()
            return self
        self._ledger = Ledger(self._env.ledger, self._env.member)
        self._membership = Membership(
            self._env, read_token(Path(self._env.token_file)), self.backends[0], self
        )
        self._awaited = True
        if not self._env.joiner:
            try:
                self._arrive()
            except BaseException as error:
                self.__exit__(type(error), error, error.__traceback__)
                raise
        return self

    def _arrive(self) -> None:
        """Dial in, and take this member's place in the world.

        A newcomer does so as late as it can: when its script wants to know something of the job,
        or after it has rehearsed a step, so that the others do not wait for its first one.
        """
        if not self._awaited or self._rehearsing:
            return
        self._awaited = False
        assert self._membership is not None and self._env is not None
        self._membership.leave_on_sigterm(self._env.grace)
        self._membership.link.start()
        self._settle()

    def _enter_alone(self) -> None:
        self._group = Group(self._world, "m0", self.backends[0])
        self._sync.attach(self._group)
        self.holds_state = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Left without an error, or by `sys.exit(0)`: training is complete here."""
        membership = self._membership
        try:
            if membership is not None:
                if error is None or (_is_orderly_exit(error) and not self._dismissed):
                    self._arrive()
                    self._finish(membership)
                elif isinstance(error, Exception):
                    self._report(membership, error)
        finally:
            self._close()

    def _finish(self, membership: Membership) -> None:
        """Training is complete here; stay until it is complete everywhere."""
        membership.finish()
        while True:
            order = membership.next_order(self.cursor.step, idle=True)
            if isinstance(order, Dismissed):
                if order.failed:
                    raise GivenUp(order.reason)
                return
            if isinstance(order, Enter):
                self._try_to_enter(order)
                membership.finish()
            elif isinstance(order, Leave):
                membership.say_settled(order.generation)

    def _report(self, membership: Membership, error: Exception) -> None:
        """The script raised: the coordinator shows it, once for all members."""
        if isinstance(error, GivenUp):  # not the script's fault: no traceback
            if not membership.link.send(membership.beat()):
                print(f"midflight: {error}", file=sys.stderr)
            _silence(error)
            return
        text = "".join(traceback.format_exception(error))
        if membership.link.send(MemberFailed(text, type(error).__name__)):
            _silence(error)

    def _close(self) -> None:
        for feed in self._feeds:
            feed.close()
        self._sync.close()
        if self._membership is not None:
            self._membership.link.close()
        self._ledger.close()
        for group in (*self._retiring, self._group):
            if group is not None:
                group.close()

    # --- where the job stands ---------------------------------------------------------------

    @property
    def world(self) -> World:
        self._arrive()
        return self._world

    @property
    def rank(self) -> int:
        self._arrive()
        if self._rehearsing and self._env is not None:
            return self._env.rank
        return self._group.rank if self._group else 0

    @property
    def size(self) -> int:
        self._arrive()
        if self._rehearsing and self._env is not None:
            return self._env.size
        return self._world.size

    @property
    def state(self) -> Values:
        """Plain values that every newcomer receives, by attribute or by key."""
        self._arrive()
        return self._values

    @property
    def step_number(self) -> int:
        """How many steps have been completed."""
        self._arrive()
        return self.cursor.step

    @property
    def epoch(self) -> int:
        self._arrive()
        return self.cursor.epoch

    @property
    def steps_done(self) -> int:
        """The same as step_number, for the heartbeats."""
        return self.cursor.step

    @property
    def horizon(self) -> int:
        """The furthest step for which data has been asked for."""
        return max((feed.sampler.horizon for feed in self._feeds), default=self.cursor.step)

    @property
    def process_group(self) -> Any:
        """The torch process group of the present world; None in a world of one."""
        self._arrive()
        return self._group.public if self._group else None

    # --- changes of the world ---------------------------------------------------------------

    def boundary(self) -> None:
        """Between two steps: settle what is due. Costs next to nothing when nothing is."""
        membership = self._membership
        self.overtaken = False
        if membership is None:
            self._broken = False
            return
        while True:
            if (
                membership.due
                or self._broken
                or self._layout_wanted.is_set()
                or not membership.begin_step(self.cursor.step)
            ):
                self._settle()
            if self._equality.every is None or self._verify():
                return

    def _verify(self) -> bool:
        """Compare the members' states if that is due; False if somebody was lost meanwhile."""
        group = self._group
        if group is None or not self._equality.is_due(self.cursor.step, group):
            return True
        mine = Standpoint(self._progress, self._capture)
        return self._together(lambda: self._equality.verify(group, mine, self._ledger))

    def compare_plans(self) -> bool:
        """Before the first step of a world: raises in a member that asks for other data.

        False if somebody was lost meanwhile.
        """
        group, self._equality.same_plan = self._group, True
        if group is None or group.size == 1:
            return True
        return self._together(lambda: compare_terms(group, self.terms()))

    def _together(self, action: Callable[[], object]) -> bool:
        """Do what all members do now; False if the world broke meanwhile."""
        self.waiting = True
        try:
            action()
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, self._group):
                raise
            self._break(error)
            return False
        finally:
            self.waiting = False
        return True

    def _settle(self) -> None:
        membership = self._membership
        assert membership is not None
        if self._layout_wanted.is_set() and self.holds_state:
            self._make_layout()
        while (order := membership.next_order(self.cursor.step)) is not None:
            match order:
                case Enter():
                    self._try_to_enter(order)
                case Leave(generation):
                    membership.say_settled(generation)
                case Dismissed(reason, failed):
                    if failed:
                        raise GivenUp(reason)
                    self._dismissed = True
                    leaving.dismiss()
                    raise SystemExit(0)

    def _try_to_enter(self, order: Enter) -> None:
        """Enter a world; if somebody is lost meanwhile, the next order will name another."""
        group = order.coming.group
        try:
            order.coming.wait()
            self._enter(order)
        except (MidflightError, RuntimeError) as error:
            if not is_communication_error(error, group):
                group.cut()  # else the group would hold up the end of this process
                raise
            assert self._membership is not None
            self._membership.broke(group, self.cursor.step, str(error))

    def _enter(self, order: Enter) -> None:
        group = order.coming.group
        newcomer = not self.holds_state
        self._sync.rewind()
        mine = Standpoint(self._progress if self.holds_state else None, self._capture)
        agreed = agree(group, self.holdings, self.terms(), mine, order.coming.prepared)
        if (received := agreed.received) is not None:
            extra = self.holdings.restore(received.snapshot, rng=newcomer and order.planned)
            self._adopt(extra)
            self._trained_in = extra["generation"]
        self._equality.entered(group, agreed, self.cursor.step, self._ledger)
        seat = Seat(group.generation, group.rank, group.size)
        if not order.planned or newcomer or received is not None:
            self.schedule.replace(seat)
        old, self._group = self._group, group
        self._world = group.world
        self.holds_state = True
        self._broken = False
        self._issued = None
        self._sync.attach(group)
        if old is not None:
            self._retiring.append(old)
        assert self._membership is not None
        self._membership.entered(group)

    @property
    def _progress(self) -> tuple[int, int, int]:
        return self._trained_in, self.cursor.step, self.cursor.epoch

    def terms(self) -> Terms:
        """On which terms this member trains; also asked by preparing threads."""
        return Terms(self.holdings.describe(), self._options, self._plan, self.cursor.epoch)

    def _adopt(self, extra: Mapping[str, Any] | None) -> None:
        if extra is not None:
            self.cursor = Cursor(extra["step"], extra["epoch"], extra["position"])

    def _capture(self) -> Snapshot:
        cursor = self.cursor
        return self.holdings.capture(
            {
                "step": cursor.step,
                "epoch": cursor.epoch,
                "position": cursor.position,
                "generation": self._trained_in,
            }
        )

    def foresee(self, step: int, world: World) -> None:
        """Called by the link's thread: from that step on another seat."""
        assert self._env is not None
        seat = Seat(world.generation, world.rank(self._env.member), world.size)
        if self.holds_state:
            self.schedule.foresee(step, seat)

    def ask_for_layout(self) -> None:
        """Called by a preparing thread: the training thread is to look at its state."""
        self._layout_made.clear()
        self._layout_wanted.set()

    def layout(self) -> Layout:
        """Called by the same thread later on: wait until it has."""
        if not self._layout_made.wait(LAYOUT_SECONDS) or self._layout is None:
            raise WorldChanged("the training thread did not come to a step boundary")
        if isinstance(self._layout, StateError):
            raise self._layout
        return self._layout

    def _make_layout(self) -> None:
        """Whatever is wrong with the state is the preparing thread's to tell: training goes on."""
        self._layout_wanted.clear()
        captured = try_capture(self._capture)
        self._layout = captured if isinstance(captured, StateError) else captured.layout
        self._layout_made.set()

    def _break(self, error: BaseException) -> None:
        """A collective failed: this step does not happen."""
        self._broken = True
        if self._membership is not None and self._group is not None:
            self._membership.broke(self._group, self.cursor.step, str(error))


def _usable_backends(modules: Mapping[str, nn.Module]) -> tuple[str, ...]:
    """Those that this member can use; several members may share a machine's only GPU, with gloo."""
    if not any(p.is_cuda for m in modules.values() for p in m.parameters()):
        return ("gloo",)
    return ("nccl", "gloo") if torch.cuda.device_count() > 1 else ("gloo", "nccl")


def _is_orderly_exit(error: BaseException) -> bool:
    """Whether this is a script's `sys.exit()`; with another code, its agent reports a failure."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _silence(error: Exception) -> None:
    """Python is not to print what the coordinator shows already."""
    usual: Callable[..., Any] = sys.excepthook

    def hook(kind: Any, value: Any, trace: Any) -> None:
        if value is not error:
            usual(kind, value, trace)

    sys.excepthook = hook
