"""A world on its way: its group is connected in a thread, while training goes on in the old one.

All use rank 0's backend; a member that cannot says so before anything is connected. For a planned
change newcomers also compare their terms with rank 0's, and the layout of the state travels ahead,
so that they have their memory ready (allocated and touched) before anybody pauses.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from midflight.deadlines import CONNECT
from midflight.errors import MidflightError, StateError, WorldChanged
from midflight.protocol.world import World
from midflight.runtime.group.keystore import KeyLine
from midflight.runtime.group.process_group import Group, is_communication_error
from midflight.runtime.state import transfer
from midflight.runtime.state.agreement import compare_terms
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout, Prepared
from midflight.runtime.state.terms import Terms

POLL_SECONDS = 0.05
BACKEND_KEY = "midflight/backend"


class Giver(Protocol):
    """The session, as seen from the thread that prepares."""

    holdings: Holdings
    backends: tuple[str, ...]  # which this member can use, the one that it prefers first

    def terms(self) -> Terms:
        """On which terms this member trains."""
        ...

    def ask_for_layout(self) -> None:
        """Have the layout made at the next step boundary, for `layout`."""
        ...

    def layout(self) -> Layout:
        """The layout of the state, as it was at the first boundary after it was asked for."""
        ...


class Coming:
    def __init__(self, world: World, name: str, backend: str, joiners: tuple[str, ...]) -> None:
        self.world = world
        self.group = Group(world, name, backend)
        self.prepared: Prepared | None = None
        self._joiners = [world.rank(joiner) for joiner in joiners]
        self._done = threading.Event()
        self._error: Exception | None = None

    @property
    def generation(self) -> int:
        return self.world.generation

    def start(self, line: KeyLine, giver: Giver, then: Callable[["Coming", str], None]) -> None:
        """Connect, in a thread; `then` hears the reason if it failed, or ''."""
        threading.Thread(
            target=self._run,
            args=(line, giver, then),
            name=f"midflight-generation-{self.generation}",
            daemon=True,
        ).start()

    def _run(self, line: KeyLine, giver: Giver, then: Callable[["Coming", str], None]) -> None:
        try:
            if self._joiners and self.group.rank == self._source:
                giver.ask_for_layout()
            if self.group.size > 1:
                self._agree_on_backend(line, giver.backends)
            self.group.connect(line)
            if self._joiners and self.group.size > 1:
                self._compare_terms(giver.terms())
                self._make_room(giver)
        except (MidflightError, RuntimeError, OSError, ValueError) as error:
            self._error = error
        self._done.set()
        then(self, "" if self._error is None else str(self._error))

    def _agree_on_backend(self, line: KeyLine, usable: tuple[str, ...]) -> None:
        group, names = self.group, self.world.names
        if group.rank == 0:
            line.set_key(self.generation, BACKEND_KEY, group.backend)
            return
        (first,) = line.want_keys(self.generation, [BACKEND_KEY], CONNECT)
        if first not in usable:
            raise StateError(
                f"{names[group.rank]} uses the backend {usable[0]} and {names[0]} uses {first}; "
                "pass the same join(backend=...) on all members"
            )
        group.backend = first

    def _compare_terms(self, terms: Terms) -> None:
        """A newcomer on other terms hears it here. Those in training may be between two plans."""
        if self.group.rank not in (0, *self._joiners):
            terms = replace(terms, plan=None)
        compare_terms(self.group, terms)

    def _make_room(self, giver: Giver) -> None:
        """The first of those who stay tells the joiners what the state looks like."""
        group, source = self.group, self._source
        if group.rank == source:
            layout = giver.layout()
            for joiner in self._joiners:
                transfer.send_layout(group.pg, joiner, layout)
        elif group.rank in self._joiners:
            layout = transfer.receive_layout(group.pg, source)
            self.prepared = giver.holdings.prepare(layout)

    @property
    def _source(self) -> int:
        """The rank that tells the joiners: the first of those who stay, as somebody always does."""
        return next(rank for rank in range(self.group.size) if rank not in self._joiners)

    @property
    def connected(self) -> bool:
        return self._done.is_set() and self._error is None

    def cancel(self) -> None:
        self.group.cut()

    async def wait(self) -> Group:
        """The connected group; raises WorldChanged when there will be none."""
        deadline = time.monotonic() + CONNECT
        while not self._done.wait(POLL_SECONDS):
            if self.group.is_cut or time.monotonic() > deadline:
                self.cancel()
                raise WorldChanged(f"generation {self.generation} was not connected")
        if self._error is not None:
            if isinstance(self._error, StateError):
                raise self._error
            if is_communication_error(self._error, self.group):
                raise WorldChanged(str(self._error)) from None
            raise self._error
        return self.group
