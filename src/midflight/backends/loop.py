"""The one loop around the controller: observe, decide, save, carry out, answer, in that order.

The server runs it for the jobs of this machine, the operator for each job of a cluster. A pass
takes what callers ask, what was told and what is observed, has the controller decide, saves the
outcome, and only then carries out what follows from it (`controller/orders.py`). If it cannot be
saved, the state stays what it was: callers get the error, and the pass is made again, later each
time. It does not matter what was missed, so whoever takes the state up after a restart does what
any pass does. An exception of the controller is a bug; it is logged, and the loop goes on.
"""

import asyncio
import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from midflight import backoff
from midflight.backends.crash_points import Passing, never
from midflight.backends.place import Deposed, Noted, Place, Step, differences
from midflight.backends.training import Questions
from midflight.controller.commands import AskResize
from midflight.controller.deadlines import deadlines_of
from midflight.controller.events import Event, TimePassed
from midflight.controller.handle import handle
from midflight.controller.orders import Observed, next_look, open_requests, orders
from midflight.controller.state import Cluster, Job
from midflight.errors import MidflightError, ProtocolError, Unreachable

FIRST_PAUSE = 0.2
TURN = 0.05  # seconds that a pass may take before all others have their turn
LONGEST_SLEEP = 60.0  # a clock that was set, or a machine that slept, is noticed by then
SHORTEST_SLEEP = 0.01  # a deadline that stays in the past must not become a busy loop

log = logging.getLogger("midflight.loop")

Decide = Callable[[Cluster, float], Event]  # looks at the state now; raises to refuse


@dataclass(frozen=True)
class Item:
    decide: Decide
    answer: "asyncio.Future[Cluster] | None" = None  # None: told by the place


@dataclass
class Draft:
    """What a pass has come to, before it is saved."""

    cluster: Cluster
    names: list[str] = field(default_factory=list)  # of the events
    records: list[Noted] = field(default_factory=list)
    answers: list[tuple[Item, Cluster]] = field(default_factory=list)

    def take(self, told: Iterable[Event]) -> None:
        """Those of one moment at once: a job with a thousand pods is not looked at for each."""
        for at, together in itertools.groupby(told, key=lambda event: event.at):
            found = list(together)
            self.cluster, records = handle(self.cluster, *found)
            self.names += [type(event).__name__ for event in found]
            self.records += [Noted(at, record) for record in records]


class Turn:
    """What one loop computes must not keep others waiting that share the thread, leases least."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def pass_on(self) -> None:
        """If it has been long enough."""
        if time.monotonic() - self._began > TURN:
            await asyncio.sleep(0)
            self._began = time.monotonic()


class Loop:
    def __init__(
        self,
        place: Place,
        clock: Callable[[], float] = time.time,
        passing: Passing = never,
        changed: Callable[[Collection[str]], None] = lambda keys: None,
        longest_pause: float = 1.0,
    ) -> None:
        """`changed` is called with the keys of jobs whose saved state is another."""
        self.place = place
        self.clock = clock
        self.passes = self.failures = 0
        self._passing = passing
        self._changed = changed
        self._longest_pause = longest_pause
        self._questions = Questions(self.tell, clock)
        self._queue: list[Item] = []
        self._singly = 0  # so many at the head of the queue are handled one by one
        self._woken: set[str] = set()
        self._told = False
        self._due: dict[str, float] = {}  # when to look at a job again
        self._inherited: dict[str, frozenset[str]] = {}  # requests of a loop before this, by uid
        self._failed = 0  # passes in a row
        self._awake = asyncio.Event()
        self._began = asyncio.Event()
        self._thread = threading.get_ident()
        self._closed = False

    @property
    def cluster(self) -> Cluster:
        return self.place.cluster

    async def start(self) -> None:
        """Take the state up, and go on behind."""
        self._task = asyncio.create_task(self.run())
        begun = asyncio.create_task(self._began.wait())
        await asyncio.wait((self._task, begun), return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._task.done():
            self._task.result()

    async def run(self) -> None:
        """Until nothing is left to reconcile."""
        self._event_loop = asyncio.get_running_loop()
        try:
            await self.place.open(self.tell, self.wake)
            self._woken.update(self.cluster.jobs)
            while True:
                await self._reconcile()
                self._began.set()
                if self.place.gone:
                    return
                await self._wait()
        finally:
            self._closed = True
            self._questions.close()
            for item in self._queue:
                _refuse(item, ending())
            self._queue.clear()

    async def ask(self, decide: Decide) -> Cluster:
        """Have something done; the state right after it, once that is saved."""
        if self._closed:
            raise ending()
        answer: asyncio.Future[Cluster] = asyncio.get_running_loop().create_future()
        self._queue.append(Item(decide, answer))
        self._awake.set()
        return await answer

    def tell(self, event: Event) -> None:
        """From any thread. Its job is looked at as well, also if the event changes nothing."""
        item = Item(lambda cluster, now: event)
        self._soon(lambda: self._put(item, getattr(event, "key", "")))

    def wake(self, key: str) -> None:
        """From any thread."""
        self._soon(lambda: self._put(None, key))

    def _soon(self, work: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            work()
        elif not self._closed:
            self._event_loop.call_soon_threadsafe(work)

    def _put(self, item: Item | None, key: str = "") -> None:
        if item is not None:
            self._queue.append(item)
            self._told = True
        if key:
            self._woken.add(key)
        if not self._failed:  # else at the end of the pause
            self._awake.set()

    async def close(self) -> None:
        """Let go; what was not handled yet is found again by the next one."""
        self._closed = True
        self._task.cancel()
        await asyncio.wait((self._task,))
        await self.place.close()

    # --- waiting ----------------------------------------------------------------------------

    async def _wait(self) -> None:
        asked = any(item.answer is not None for item in self._queue)
        if self._singly or asked:
            self._awake.set()
        elif self._failed:
            self._awake.clear()
        try:
            async with asyncio.timeout(self._delay()):
                await self._awake.wait()
        except TimeoutError:
            pass
        self._awake.clear()

    def _delay(self) -> float | None:
        """Seconds to the next pass, if nothing is heard."""
        if self._failed:
            return backoff.pause(FIRST_PAUSE, self._longest_pause, self._failed - 1)
        times = [*self._due.values(), *(at for at in (self.place.due(),) if at is not None)]
        if not times:
            return None
        return min(max(min(times) - self.clock(), SHORTEST_SLEEP), LONGEST_SLEEP)

    # --- a pass -----------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        self._told = False  # since the pass began
        now = self.clock()
        keys = self._woken | {key for key, at in self._due.items() if at <= now}
        if (due := self.place.due()) is not None and due <= now:
            keys |= self.cluster.jobs.keys()
        self._woken = set()
        try:
            async with self.place.turn():
                await self._pass(keys)
        except Deposed:
            raise
        except MidflightError as error:
            self._has_failed(keys, str(error))
        except Exception:  # whatever it is, the others must go on
            log.exception("a bug: %s was not reconciled", self.place.name)
            self._has_failed(keys)
        else:
            if self._failed:
                log.info("%s: what could not be done before is done now", self.place.name)
            self._failed = 0
            self.passes += 1
            if self._woken or self._told:
                self._awake.set()

    async def _pass(self, keys: set[str]) -> None:
        """What waits in the queue stays there until there is something to decide it with."""
        try:
            steps = await self.place.observe(keys)
        except Exception as error:
            self._not_saved(self._take_items(), error)
            raise
        if steps is None:
            self._due.clear()
        else:
            await self._decide(self._take_items(), steps, keys)

    def _take_items(self) -> list[Item]:
        count = 1 if self._singly else len(self._queue)
        self._singly = max(0, self._singly - 1)
        items, self._queue = self._queue[:count], self._queue[count:]
        return items

    def _has_failed(self, keys: Collection[str], why: str = "") -> None:
        if why and not self._failed:
            log.error("%s: %s", self.place.name, why)
        self._failed += 1
        self.failures += 1
        self._woken.update(keys)

    async def _decide(self, items: list[Item], steps: Collection[Step], keys: set[str]) -> None:
        self._note_requests(keys)
        try:
            draft = await self._digest(items, steps)
        except asyncio.CancelledError:
            self._queue = items + self._queue  # for whoever refuses them
            raise
        before, kept = self.cluster, [item for item, _ in draft.answers]
        try:
            self._passing("before-save", draft.names)
            await self.place.save(draft.cluster, draft.records)
            self._passing("after-save", draft.names)
        except Exception as error:  # a bug, and one of them has it, unless it is the store's
            stuck = isinstance(error, MidflightError) and not isinstance(error, ProtocolError)
            if stuck or not kept:
                self._not_saved(kept, error)
                raise
            self._not_savable(kept, error)
            self._woken.update(keys)
            return
        changed = differences(before.jobs, self.cluster.jobs)
        try:
            await self._carry_out(before, keys | changed.keys(), draft.names)
        finally:
            self._passing("before-answer", draft.names)
            self._changed(changed.keys())
            for item, cluster in draft.answers:
                if item.answer is not None and not item.answer.done():
                    item.answer.set_result(cluster)

    async def _digest(self, items: list[Item], steps: Collection[Step]) -> Draft:
        draft, turn = Draft(self.cluster), Turn()
        for item in items:
            await turn.pass_on()
            event: Event | None = None
            try:
                event = item.decide(draft.cluster, self.clock())
                draft.take([event])
            except MidflightError as error:
                _refuse(item, error)
            except Exception as error:  # whatever it is, the others must go on
                what = "a wish" if event is None else _words(event)
                log.exception("a bug: %s was not handled", what)
                _refuse(item, error)
            else:
                draft.answers.append((item, draft.cluster))
        for step in steps:
            await turn.pass_on()
            try:
                draft.take(step(draft.cluster, self.clock()))
            except Exception:  # whatever it is, the others must go on
                log.exception("a bug: what was observed was not handled")
        now = self.clock()
        if any(at <= now for at in self._due.values()):
            draft.take([TimePassed(now)])
        return draft

    def _not_saved(self, items: list[Item], error: Exception) -> None:
        for item in items:
            _refuse(item, error)
        self._queue = [item for item in items if item.answer is None] + self._queue

    def _not_savable(self, items: list[Item], error: Exception) -> None:
        if len(items) > 1:
            self._queue = items + self._queue
            self._singly = len(items)
            self._awake.set()
            return
        log.exception("a bug: what was to be saved cannot be written; it is left out")
        for item in items:
            _refuse(item, error)

    # --- what follows -----------------------------------------------------------------------

    async def _carry_out(self, before: Cluster, keys: set[str], names: list[str]) -> None:
        """For all of them; those for which it cannot be done are looked at again."""
        failed: dict[str, Exception] = {}
        turn = Turn()
        for key in sorted(keys):
            await turn.pass_on()
            former, job = before.jobs.get(key), self.cluster.jobs.get(key)
            try:
                if former is not None and (job is None or job.uid != former.uid):
                    self._passing("before-command", names)
                    await self._remove(former)
                    self._passing("after-command", names)
                if job is not None:
                    self._inherited.setdefault(job.uid, frozenset())
                    await self._carry_out_for(job, names)
            except Deposed:
                raise
            except Exception as error:  # noqa: BLE001 - the others must go on
                failed[key] = error
        self._woken.update(failed)
        if failed:
            raise next(iter(failed.values()))

    async def _carry_out_for(self, job: Job, names: list[str]) -> None:
        given = orders(job, self._observed(job))
        deeds = [order for order in given if not isinstance(order, AskResize)]
        if deeds:
            self._passing("before-command", names)
        await self.place.carry_out(job, deeds)
        if deeds:
            self._passing("after-command", names)
        self._questions.keep(job)
        for request in (order for order in given if isinstance(order, AskResize)):
            self._passing("before-command", names)
            self._questions.ask(request, self.place.dial(job), self.place.expects_run(job))
            self._passing("after-command", names)
        times = [*deadlines_of(job), next_look(job, self._observed(job))]
        self._due.pop(job.key, None)
        if found := [at for at in times if at is not None]:
            self._due[job.key] = min(found)

    async def _remove(self, job: Job) -> None:
        self._due.pop(job.key, None)
        self._inherited.pop(job.uid, None)
        self._questions.drop(job.key)
        await self.place.remove(job)

    def _observed(self, job: Job) -> Observed:
        return replace(
            self.place.observed(job),
            asking=self._questions.of(job.key),
            asked_before=self._inherited.get(job.uid, frozenset()),
        )

    def _note_requests(self, keys: Collection[str]) -> None:
        """Of jobs that this loop has not seen before: somebody else has asked them."""
        for key in keys:
            if (job := self.cluster.jobs.get(key)) is not None:
                self._inherited.setdefault(job.uid, open_requests(job))


def ending() -> Unreachable:
    return Unreachable(
        "the server is ending; jobs keep running, and the next command starts it again"
    )


def _refuse(item: Item, error: BaseException) -> None:
    if item.answer is not None and not item.answer.done():
        item.answer.set_exception(error)


def _words(event: Event) -> str:
    """An event, without its spec, which may hold secrets."""
    fields = (f.name for f in dataclasses.fields(event) if f.name not in ("at", "spec", "nodes"))
    return f"{type(event).__name__} {' '.join(f'{n}={getattr(event, n)!r}' for n in fields)}"
