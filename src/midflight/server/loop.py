"""The one loop around the controller: handle, save, carry out, answer, in that order.

Whatever arrives in one turn of the event loop (what callers ask, what the backend tells, a deadline
that is over) is handled in the order it came, saved in one transaction, and only then do commands
go to the backend and answers to callers. If it cannot be saved, the state stays what it was:
callers get the error, and what the backend told stays first in the queue and is tried again.
An exception of the controller is a bug; it is logged, and the server goes on.
"""

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from midflight.backends.interface import Backend
from midflight.controller.commands import Command, Record, RemoveJob
from midflight.controller.deadlines import deadlines_of
from midflight.controller.events import Event, NodesChanged, ServerStarted, TimePassed
from midflight.controller.handle import handle
from midflight.controller.state import Cluster, Job
from midflight.errors import MidflightError, StoreError
from midflight.server.crash_points import Passing, never
from midflight.server.journal import Journal, Noted, differences
from midflight.server.nodes import are_simulated
from midflight.server.waiters import Waiters, ending

RETRY = 1.0  # seconds until what could not be saved is tried again
LONGEST_SLEEP = 60.0  # a clock that was set, or a machine that slept, is noticed by then
SHORTEST_SLEEP = 0.01  # a deadline that stays in the past must not become a busy loop

log = logging.getLogger("midflight.server")

Decide = Callable[[Cluster, float], Event]  # looks at the state now; raises to refuse


@dataclass(frozen=True)
class Item:
    decide: Decide
    answer: "asyncio.Future[Cluster] | None" = None  # None: told by the backend


@dataclass
class Draft:
    """What a turn has come to, before it is saved."""

    cluster: Cluster
    names: list[str] = field(default_factory=list)
    records: list[Noted] = field(default_factory=list)
    orders: list[tuple[Command, Cluster]] = field(default_factory=list)
    answers: list[tuple[Item, Cluster]] = field(default_factory=list)

    def add(self, event: Event, cluster: Cluster, commands: list[Command]) -> None:
        self.cluster = cluster
        self.names.append(type(event).__name__)
        for command in commands:
            if isinstance(command, Record):
                self.records.append(Noted(event.at, command))
                continue
            if isinstance(command, RemoveJob):  # its records go with it
                self.records = [n for n in self.records if n.record.key != command.key]
            self.orders.append((command, cluster))


class Loop:
    def __init__(
        self,
        journal: Journal,
        backend: Backend,
        passing: Passing = never,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.journal = journal
        self.backend = backend
        self.clock = clock
        self.cluster = journal.load()
        self.waiters = Waiters()
        self._due: dict[str, float] = {}  # the next deadline of each job that has one
        self._note_deadlines(dict(self.cluster.jobs))
        self._passing = passing
        self._queue: list[Item] = []
        self._singly = 0  # so many at the head of the queue are handled one by one
        self._stuck = False  # the journal cannot be written
        self._turn_at: asyncio.TimerHandle | asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._closed = False

    async def start(self) -> None:
        """Take up what the journal holds."""
        self._event_loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        await self.backend.open(self.tell)
        if not are_simulated(self.cluster.nodes):
            nodes = self.backend.nodes()
            await self.ask(lambda _, now: NodesChanged(now, nodes))
        await self.ask(lambda _, now: ServerStarted(now))
        await self.backend.adopt(self.cluster)

    async def ask(self, decide: Decide) -> Cluster:
        """Have something done; the state right after it, once that is saved."""
        if self._closed:
            raise ending()
        answer: asyncio.Future[Cluster] = self._event_loop.create_future()
        self._put(Item(decide, answer))
        return await answer

    def tell(self, event: Event) -> None:
        """For the backend, from any thread."""
        item = Item(lambda cluster, now: event)
        if threading.get_ident() == self._thread:
            self._put(item)
        elif not self._closed:
            self._event_loop.call_soon_threadsafe(self._put, item)

    def note(self, key: str, instance: str, line: str) -> None:
        """A line about an instance, for people only; from any thread."""
        record = Record(key, f"instance/{instance}", "Normal", "Note", line)
        if not self._closed:
            self._event_loop.call_soon_threadsafe(self._write_note, Noted(self.clock(), record))

    async def close(self) -> None:
        """Let go; what was not handled yet is found again by the next server."""
        self._closed = True
        for timer in (self._turn_at, self._deadline):
            if timer is not None:
                timer.cancel()
        for item in self._queue:
            _refuse(item, ending())
        self._queue.clear()
        self.waiters.close()
        await self.backend.close()
        self.journal.close()

    # --- a turn -----------------------------------------------------------------------------

    def _put(self, item: Item) -> None:
        if self._closed:
            _refuse(item, ending())
            return
        self._queue.append(item)
        self._schedule(0.0)

    def _schedule(self, delay: float) -> None:
        if self._turn_at is not None:
            self._turn_at.cancel()
        if delay:
            self._turn_at = self._event_loop.call_later(delay, self._turn)
        else:
            self._turn_at = self._event_loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_at = None
        count = 1 if self._singly else len(self._queue)
        self._singly = max(0, self._singly - 1)
        items, self._queue = self._queue[:count], self._queue[count:]
        draft = self._digest(items)
        kept = [item for item, _ in draft.answers]
        try:
            self._passing("before-save", draft.names)
            self.journal.save(self.cluster, draft.cluster, draft.records)
            self._passing("after-save", draft.names)
        except StoreError as error:
            self._not_saved(kept, error)
        except Exception as error:  # noqa: BLE001 - a bug, and one of them has it
            self._not_savable(kept, error)
        else:
            self._saved(draft)
        if self._queue and self._turn_at is None:
            self._schedule(0.0)

    def _digest(self, items: list[Item]) -> Draft:
        draft = Draft(self.cluster)
        for item in items:
            event: Event | None = None
            try:
                event = item.decide(draft.cluster, self.clock())
                cluster, commands = handle(draft.cluster, event)
            except MidflightError as error:
                _refuse(item, error)
            except Exception as error:  # whatever it is, the others must go on
                log.exception(
                    "a bug: %s was not handled", "a wish" if event is None else _of(event)
                )
                _refuse(item, error)
            else:
                draft.add(event, cluster, list(commands))
                draft.answers.append((item, cluster))
        return draft

    def _not_saved(self, items: list[Item], error: StoreError) -> None:
        if not self._stuck:
            log.error("%s", error)
        self._stuck = True
        told = [item for item in items if item.answer is None]
        for item in items:
            _refuse(item, error)
        self._queue = told + self._queue
        if self._queue:
            self._schedule(RETRY)

    def _not_savable(self, items: list[Item], error: Exception) -> None:
        if len(items) > 1:
            self._queue = items + self._queue
            self._singly = len(items)
            return
        log.exception("a bug: what was to be saved cannot be written; it is left out")
        for item in items:
            _refuse(item, error)

    def _saved(self, draft: Draft) -> None:
        if self._stuck and (draft.records or draft.cluster is not self.cluster):
            self._stuck = False
            log.info("the journal can be written again")
        before, self.cluster = self.cluster, draft.cluster
        for command, cluster in draft.orders:
            self._passing("before-command", draft.names)
            self._carry_out(command, cluster)
            self._passing("after-command", draft.names)
        self._passing("before-answer", draft.names)
        changed = differences(before.jobs, self.cluster.jobs)
        self._note_deadlines(changed)
        self.waiters.wake(changed)
        for item, cluster in draft.answers:
            if item.answer is not None and not item.answer.done():
                item.answer.set_result(cluster)
        self._set_deadline()

    def _write_note(self, noted: Noted) -> None:
        if self._closed or noted.record.key not in self.cluster.jobs:
            return
        try:
            self.journal.save(self.cluster, self.cluster, [noted])
        except StoreError as error:
            log.error("%s", error)

    def _carry_out(self, command: Command, cluster: Cluster) -> None:
        try:
            self.backend.carry_out(command, cluster)
        except Exception:  # the backend promises not to raise
            log.exception("a bug: %s was not carried out", type(command).__name__)

    def _note_deadlines(self, changed: Mapping[str, Job | None]) -> None:
        for key, job in changed.items():
            self._due.pop(key, None)
            if job is not None and (due := min(deadlines_of(job), default=None)) is not None:
                self._due[key] = due

    def _set_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if not self._due or self._closed:
            return
        left = min(self._due.values()) - self.clock()
        delay = min(max(left, SHORTEST_SLEEP), LONGEST_SLEEP)
        self._deadline = self._event_loop.call_later(delay, self._time_passed)

    def _time_passed(self) -> None:
        self._deadline = None
        self._put(Item(lambda _, now: TimePassed(now)))


def _refuse(item: Item, error: BaseException) -> None:
    if item.answer is not None and not item.answer.done():
        item.answer.set_exception(error)


def _of(event: Event) -> str:
    """An event in words, without its spec, which may hold secrets."""
    fields = (f.name for f in dataclasses.fields(event) if f.name not in ("at", "spec", "nodes"))
    return f"{type(event).__name__} {' '.join(f'{n}={getattr(event, n)!r}' for n in fields)}"
