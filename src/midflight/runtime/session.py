"""Session: what is trained in this process, how far it has come, and its place among the others.

It joins the parts of this package in the training thread. At a step boundary the driver goes from
world to world, and the session agrees with the members of a new one on the state (`agreement`).
Within a step it knows which samples the step is for, and whether it still counts. The verbs of a
script are `job.Job`'s.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from midflight import leaving, terminal
from midflight.errors import StateError, WorldChanged
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.world import ALONE, World
from midflight.rundir import read_token
from midflight.runtime import torch_private
from midflight.runtime.data.feed import Feed
from midflight.runtime.data.ledger import Ledger, checksum
from midflight.runtime.data.plan import Cursor, Seat
from midflight.runtime.data.sampler import Issued
from midflight.runtime.data.schedule import Schedule
from midflight.runtime.gradients.ddp import GradientSync
from midflight.runtime.gradients.sync import gradient_sync
from midflight.runtime.group.process_group import Group, is_communication_error
from midflight.runtime.group.public_group import check_waits
from midflight.runtime.membership.driver import Driver, block
from midflight.runtime.membership.member import Enter, Membership
from midflight.runtime.membership.script_end import is_orderly_exit, report
from midflight.runtime.options import Options
from midflight.runtime.shadow.eligibility import (
    Facts,
    describe,
    is_wanted,
    objection,
)
from midflight.runtime.shadow.join import Conclude, Means, Shadow, Share, begin, seat_in
from midflight.runtime.shadow.stream import Copies, Pace
from midflight.runtime.state import checkpoint
from midflight.runtime.state.agreement import (
    Agreement,
    Standpoint,
    agree,
    compare_terms,
    try_capture,
)
from midflight.runtime.state.background import Rest, rest_of
from midflight.runtime.state.checkpoints import Checkpoints, Moment
from midflight.runtime.state.equality import Equality
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout, Snapshot
from midflight.runtime.state.room import can_copy
from midflight.runtime.state.terms import Terms
from midflight.runtime.state.values import Values

_WAITS_INSIDE = ("find_unused_parameters", "static_graph")  # DDP waits for a collective of its own
POLL_SECONDS = 0.05


class Session:
    def __init__(self, objects: Mapping[str, Any], options: Options) -> None:
        torch_private.check()
        plain: dict[str, Any] = {}
        self.values = Values(plain)
        self.holdings = Holdings(objects, plain)
        self.optimizers = [o for o in objects.values() if isinstance(o, torch.optim.Optimizer)]
        modules = {n: o for n, o in objects.items() if isinstance(o, nn.Module)}
        self.backends = options.backends(modules.values())
        self.driver = Driver(self, Group(ALONE, "m0", self.backends[0]))
        self.sync = gradient_sync(modules, options.ddp, options.deterministic, self.driver.broke)
        self.equality = Equality(options.verify_every)
        self.checkpoints: Checkpoints | None = None
        self.env = WorkerEnv.from_env(os.environ)
        self._objects = objects
        self._options = options
        self._check_waits()
        # --- how far training has come
        self.cursor = Cursor()
        self.samples_done = 0  # by the whole job
        self.schedule = Schedule(Seat(0, 0, 1))
        self.plan: Mapping[str, Any] | None = None  # of the data, as the script asked for it
        self.feed: Feed | None = None
        self.holds_state = False
        self.shadow: Shadow | None = None  # while newcomers receive the state in the background
        self.own_collectives = self.own_steps = False  # the script's, which leave no time for that
        self._trained_in = 0  # the generation in which the last step was completed
        self._ledger = Ledger("", "")
        # --- the step under way
        self.issued: Issued | None = None  # the micro batch that was handed out
        self.waiting = False  # in a collective; told with the heartbeats
        self._own = (0, 0)  # samples of this step so far, and their checksum
        # --- where this member stands
        self.overtaken = False  # the others are past the epoch that the script is at the end of
        self.rehearsing = False  # the script is in a step that does not count
        self.awaited = False  # the others do not know of this member yet
        self._finished = False  # the script has left the job, and makes no step any more
        self._dismissed = False  # the others go on without this member
        self._layout_wanted = threading.Event()
        self._layout_made = threading.Event()
        self._layout: Layout | StateError | None = None  # or why there can be none
        self._copies = Copies()  # for the state that is sent while all train
        self._cramped = False  # there is no memory for them

    def _check_waits(self) -> None:
        for name in _WAITS_INSIDE:
            if self.env is not None and self._options.ddp and self._options.ddp.get(name):
                check_waits(f"join(ddp={{{name!r}: ...}})", self.backends[0])

    # --- coming and going -------------------------------------------------------------------

    def start(self) -> None:
        joins = self.env is not None and self.env.joiner  # and receives the others' state
        saved = None
        if self._options.resume is not None and not joins:
            saved = checkpoint.load_into(Path(self._options.resume), self.holdings)
        self._adopt(saved)
        if self.env is None:
            self.sync.attach(self.group)
            self.holds_state = True
            return
        self._ledger = Ledger(self.env.ledger, self.env.member)
        if saved is not None or self.cursor.step:
            self._ledger.resumed(self.cursor.step)
        secret = read_token(Path(self.env.token_file))
        self.driver.membership = Membership(self.env, secret, self.backends[0], self)
        self.awaited = True
        if not self.env.joiner:
            self.arrive()

    def arrive(self) -> None:
        """Dial in, and take this member's place in the world, if it has none yet.

        A newcomer does so as late as it can: when its script wants to know something of the job,
        or after it has rehearsed a step, so that the others do not wait for its first one.
        """
        if not self.awaited or self.rehearsing:
            return
        self.awaited = False
        assert self.driver.membership is not None
        self.driver.membership.start()
        block(self.driver.settle())

    def end(self, error: BaseException | None) -> None:
        """The script has left the job. Without an error, or by `sys.exit(0)`, it has completed it.

        Then this member stays until training is complete everywhere.
        """
        try:
            if error is None or (is_orderly_exit(error) and not self._dismissed):
                self.arrive()
                self.catch_up()
                self._finished = True
                if not self.driver.broken:
                    self._keep_last_state()
                block(self.driver.finish(stay=True))
                self._keep_last_state()  # if rank 0 was lost before it had
            elif isinstance(error, Exception) and self.driver.membership is not None:
                report(self.driver.membership, error, self.issued)
        finally:
            self._close()

    def _keep_last_state(self) -> None:
        if self.checkpoints is not None:
            self.checkpoints.finish(self._moment())

    def _close(self) -> None:
        self._drop_shadow()
        if self.feed is not None:
            self.feed.close()
        if self.checkpoints is not None:
            self.checkpoints.close()
        self.sync.close()
        self.driver.close()
        self._ledger.close()

    def dismissed(self) -> None:
        """Called by the driver: the others go on without this member."""
        self._dismissed = True
        leaving.dismiss()

    # --- where this member stands -----------------------------------------------------------

    @property
    def group(self) -> Group:
        return self.driver.group

    @property
    def rank(self) -> int:
        if self.rehearsing and self.env is not None:
            return self.env.rank
        return self.group.rank

    @property
    def size(self) -> int:
        if self.rehearsing and self.env is not None:
            return self.env.size
        return self.group.size

    @property
    def steps_done(self) -> int:
        return self.cursor.step

    @property
    def horizon(self) -> int:
        """The furthest step for which data has been asked for."""
        return self.cursor.step if self.feed is None else self.feed.sampler.horizon

    # --- a step -----------------------------------------------------------------------------

    def boundary(self) -> None:
        """Between two steps: settle what is due. Costs next to nothing when nothing is."""
        self.overtaken = False
        if self.checkpoints is not None and self.holds_state and not self.driver.broken:
            self.checkpoints.look(self._moment())
        if self.driver.membership is None:
            self.driver.broken = False
            return
        while True:
            if self._layout_wanted.is_set() and self.holds_state:
                self._make_layout()
            if self.driver.is_due():
                block(self.driver.settle())
            if self.shadow is not None and self.shadow.is_due(self.cursor.step):
                self._together(self._consult)
                continue
            if self.equality.every is None or self._verify():
                return

    # --- a shadow join ----------------------------------------------------------------------

    def end_shadow(self) -> bool:
        """All members are where newcomers need the state; False: somebody was lost meanwhile."""
        return self.shadow is None or self._together(partial(self._consult, hurry=True))

    def catch_up(self) -> None:
        """The script has come to the end of its batches, or of the job: it has the state then."""
        while self.shadow is not None:
            if self.driver.is_due():
                block(self.driver.settle())
            else:
                self.end_shadow()

    def _consult(self, *, hurry: bool = False) -> None:
        """All say where they stand; see `shadow.join`."""
        shadow, membership = self.shadow, self.driver.membership
        assert shadow is not None and membership is not None
        hurry = hurry or membership.is_leaving
        match shadow.consult(self.cursor.step, self.horizon, hurry=hurry):
            case Share(step):
                self.schedule.foresee(step, seat_in(self.group))
            case Conclude():
                has_state = shadow.finish()
                self._drop_shadow()
                mine = Standpoint(self._progress if has_state else None, self.capture)
                agreed = agree(self.group, self.holdings, self.terms(), mine, None)
                self._take_over(self.group, agreed, rng=not has_state)
                if self.schedule.at(self.cursor.step).sharers is not None:
                    self.schedule.replace(seat_in(self.group))
                self.holds_state = True
                membership.say_settled(self.group.generation)
            case None:
                pass

    def _begin_shadow(self, group: Group, rest: Rest) -> None:
        """The newcomers of this world have all that is small; the rest follows."""
        assert self.driver.membership is not None and self.env is not None
        pace = partial(Pace, lambda: group.waits.are_open, self.env.join_bandwidth)
        means = Means(self.driver.membership.link, pace, self._copies)
        self._copies = Copies()
        self.shadow = begin(group, rest, means, self.capture, self.optimizers)
        group.on_cut.append(self.shadow.cut)
        if self.shadow.is_newcomer and isinstance(self.sync, GradientSync):
            self.sync.before_evaluation = self._before_evaluation

    def _before_evaluation(self) -> None:
        """Between two steps the script is about to use a newcomer's weights: get them now."""
        if self.shadow is not None and self.shadow.is_due(self.cursor.step):
            self.end_shadow()

    def _drop_shadow(self) -> None:
        shadow, self.shadow = self.shadow, None
        if shadow is not None:
            shadow.close()

    def _may_follow(self, snapshot: Snapshot, *, leavers: bool = False, loud: bool = False) -> bool:
        """Whether newcomers may receive this state in the background."""
        ddp = self._options.ddp
        facts = Facts(
            joining=self._options.joining,
            nbytes=sum(snapshot.layout.slots[n].nbytes for n in rest_of(self.holdings, snapshot)),
            leavers=leavers,
            cramped=self._cramped,
            deterministic=self._options.deterministic is not None,
            averages=ddp is not False,
            bucket_views=ddp is not False and bool(ddp.get("gradient_as_bucket_view")),
            own_steps=self.own_steps or self.feed is None,
            own_collectives=self.own_collectives,
            **describe(self._objects),
        )
        reason = objection(facts) if is_wanted(facts) else ""
        if reason and loud:
            terminal.say(f"newcomers receive the state while the others wait, because {reason}")
        return reason is None

    def _verify(self) -> bool:
        """Compare the members' states if that is due; False if somebody was lost meanwhile."""
        group = self.group
        if self.shadow is not None or not self.equality.is_due(self.cursor.step, group):
            return True
        mine = Standpoint(self._progress, self.capture)
        return self._together(lambda: self.equality.verify(group, mine, self._ledger))

    def begin(self, issued: Issued) -> bool:
        """The feed hands a micro batch out. False: its step is void."""
        if self.driver.broken or self.group.is_cut:
            return False  # nobody waits for the rest of its micro batches
        if self.driver.membership and issued.seat.generation != self.group.generation:
            return False
        if issued.micro == 0:
            if not self.equality.same_plan and not self._compare_plans():
                return False
            self._own = (0, 0)
            self.group.waits.met = False
            self.clear_gradients()
        self.issued = issued
        self.sync.expect(issued)
        return True

    def _compare_plans(self) -> bool:
        """Before the first step of a world: raises in a member that asks for other data.

        False if somebody was lost meanwhile.
        """
        group, self.equality.same_plan = self.group, True
        return group.size == 1 or self._together(lambda: compare_terms(group, self.terms()))

    def used(self, issued: Issued) -> None:
        """This member has done its part of a micro batch."""
        count, crc = self._own
        self._own = (count + len(issued.indices), checksum(issued.indices, crc))

    def complete(self) -> None:
        """The step under way has happened."""
        issued, self.issued = self.issued, None
        self.sync.complete()
        self.group.waits.met = False
        self.holds_state = self.shadow is None or not self.shadow.is_newcomer
        self._trained_in = self.group.generation
        if issued is None:
            self.cursor = replace(self.cursor, step=self.cursor.step + 1)
        else:
            self.cursor = issued.extent.after
            self.samples_done += issued.extent.count
            self._ledger.write(issued, *self._own)
        self.driver.stepped()

    def clear_gradients(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def collective(self) -> Iterator[None]:
        """Around what all members do together. If one is lost, so is the step: WorldChanged."""
        self.waiting = True
        try:
            yield
        except (RuntimeError, WorldChanged) as error:
            if not is_communication_error(error, self.group):
                raise
            self.driver.broke(error)
            raise WorldChanged("a member was lost during a collective") from error
        finally:
            self.waiting = False

    def _together(self, action: Callable[[], object]) -> bool:
        """Do what all members do now; False if one was lost meanwhile."""
        try:
            with self.collective():
                action()
        except WorldChanged:
            return False
        return True

    # --- the state --------------------------------------------------------------------------

    async def enter(self, order: Enter) -> None:
        """Agree with the members of a new world on the state, and take it over if it is theirs."""
        group = order.coming.group
        self._drop_shadow()
        newcomer = not self.holds_state
        self.sync.rewind()
        progress = self._progress if self.holds_state else None
        mine = Standpoint(progress, self.capture, partial(self._in_background, order))
        agreed = agree(group, self.holdings, self.terms(), mine, order.coming.prepared)
        self._take_over(group, agreed, rng=newcomer and order.planned)
        if agreed.rest is not None:
            self._begin_shadow(group, agreed.rest)
        self._copies.release()
        if not order.planned or agreed.received is not None or self.shadow is not None or newcomer:
            self.schedule.replace(seat_in(group, self.shadow))
        self.holds_state = self.shadow is None or not newcomer
        self.issued = None
        self.sync.attach(group)

    def _in_background(self, order: Enter, snapshot: Snapshot | None) -> bool:
        """Whether this member agrees to a shadow join; None: as a newcomer."""
        if self._finished or not order.planned:
            return False
        if snapshot is None:
            return self._options.joining != "blocking"
        before, after = set(self.group.world.names), set(order.coming.world.names)
        if after <= before:
            return False
        loud = order.coming.group.rank == 0
        return self._may_follow(snapshot, leavers=not before <= after, loud=loud)

    def _take_over(self, group: Group, agreed: Agreement, *, rng: bool) -> None:
        if (received := agreed.received) is not None:
            extra = self.holdings.restore(received.snapshot, rng=rng)
            self._adopt(extra)
            self._trained_in = extra["generation"]
        self.equality.entered(group, agreed, self.cursor.step, self._ledger)

    @property
    def _progress(self) -> tuple[int, int, int]:
        return self._trained_in, self.cursor.step, self.cursor.epoch

    def _adopt(self, extra: Mapping[str, Any] | None) -> None:
        if extra is not None:
            self.cursor = Cursor(extra["step"], extra["epoch"], extra["position"])
            self.samples_done = extra.get("samples", 0)  # older checkpoints have none

    def capture(self) -> Snapshot:
        cursor = self.cursor
        return self.holdings.capture(
            {
                "step": cursor.step,
                "epoch": cursor.epoch,
                "position": cursor.position,
                "generation": self._trained_in,
                "samples": self.samples_done,
            }
        )

    def _moment(self) -> Moment:
        where = {"step": self.cursor.step, "epoch": self.cursor.epoch, "size": self.size}
        return Moment(self.capture, where, self.rank == 0 or self.driver.is_first_left)

    def _make_layout(self) -> None:
        """Whatever is wrong with the state is the preparing thread's to tell: training goes on."""
        self._layout_wanted.clear()
        captured = try_capture(self.capture)
        self._layout = captured if isinstance(captured, StateError) else captured.layout
        self._copies, self._cramped = Copies(), False
        if isinstance(captured, Snapshot) and self._may_follow(captured):
            rest = [captured.tensors[n] for n in rest_of(self.holdings, captured)]
            self._cramped = not can_copy(rest, self.group.local_size)
            self._copies = Copies(() if self._cramped else rest)
        self._layout_made.set()

    # --- asked by the threads of the membership ---------------------------------------------

    def terms(self) -> Terms:
        """On which terms this member trains."""
        described, options = self.holdings.describe(), self._options.in_common()
        return Terms(described, options, self.plan, self.cursor.epoch)

    def foresee(self, step: int, world: World) -> None:
        """From that step on another seat."""
        assert self.env is not None
        seat = Seat(world.generation, world.rank(self.env.member), world.size)
        if self.holds_state:
            self.schedule.foresee(step, seat)

    def ask_for_layout(self) -> None:
        """The training thread is to look at its state."""
        self._layout_made.clear()
        self._layout_wanted.set()

    def layout(self, group: Group) -> Layout:
        """Wait until it has; the preparation ends with the request that it is for."""
        while not self._layout_made.wait(POLL_SECONDS):
            if group.is_cut:
                raise WorldChanged("the training thread did not reach a step boundary in time")
        assert self._layout is not None
        if isinstance(self._layout, StateError):
            raise self._layout
        self._copies.touch()
        group.on_cut.append(self._copies.release)
        return self._layout
