"""The rendezvous through a real etcd: a lease says who carries the coordinator.

Under torchrun/ID/ lie the job's secret, an entry for each node, which ends with the node's lease,
and where the coordinator is, with the lease of its node. When that entry is gone, whoever writes it
first carries the coordinator on, from the state in etcd. A node that finds a state but no other
node begins anew: what it found was left by a job that died as a whole.
"""

import asyncio
import contextlib
import functools
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from midflight.compat.torchelastic.node_protocol import Arrival, Identity, Node
from midflight.compat.torchelastic.places import address_of, listen_anywhere
from midflight.compat.torchelastic.probe import Answer, look
from midflight.compat.torchelastic.rendezvous import Rendezvous
from midflight.console import say
from midflight.coordinator.core.state import Phase, State, initial
from midflight.coordinator.saved_state import Saving, forget
from midflight.coordinator.shell import now
from midflight.errors import (
    Conflict,
    LeaseEnded,
    MidflightError,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from midflight.private_file import read_private
from midflight.protocol import codec
from midflight.store.interface import Lease, Store
from midflight.store.urls import open_store

LOGIN_FILE = "MIDFLIGHT_ETCD_LOGIN_FILE"
_PATIENCE = 10.0  # seconds for one call
_PAUSE = 0.1
_REFUSED_OFTEN = 3  # looks
_DEPART_SECONDS = 1.0  # what is not cleared up by then ends with the lease
_ENDED = (Phase.SUCCEEDED, Phase.FAILED)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Chair:
    """Who carries the coordinator, and where."""

    host: str
    address: str


class EtcdMeeting:
    def __init__(self, rendezvous: Rendezvous, environ: Mapping[str, str]) -> None:
        self._rendezvous = rendezvous
        self._login_file = rendezvous.config.get("login_file") or environ.get(LOGIN_FILE)
        self._ttl = max(2.0, min(rendezvous.lease, 60.0))
        self._key = rendezvous.run_id
        self._store: Store | None = None
        self._lease: Lease | None = None
        self._identity: Identity | None = None
        self._secret = b""
        self._door = ""
        self._sits = False  # whether this node carries the coordinator
        self._renewing: asyncio.Task[None] | None = None

    # --- the start --------------------------------------------------------------------------

    async def arrive(self, identity: Identity) -> Arrival:
        self._identity = identity
        listener = listen_anywhere(identity.address)
        self._door = address_of(listener, identity.address)
        try:
            patience = min(_PATIENCE, self._rendezvous.join_timeout)
            url = self._rendezvous.etcd_url(self._login())
            self._store = open_store(url, patience=patience)
            self._secret = await asyncio.to_thread(self._agree_on_secret)
            await asyncio.to_thread(self._register)
        except StoreUnavailable as error:
            raise StoreUnavailable(
                f"{error}; --rdzv-backend etcd wants an etcd with its v3 API at --rdzv-endpoint"
            ) from None
        self._renewing = asyncio.create_task(self._renew())
        return Arrival(self._secret, listener, self._door)

    def _login(self) -> str:
        """USER:PASSWORD; "" where etcd asks for none."""
        if not self._login_file:
            return ""
        login = read_private(Path(self._login_file), "login file", "change the password")
        user, colon, _ = (text := login.decode(errors="replace").strip()).partition(":")
        if not user or not colon or "\n" in text:
            raise UsageError(f"the login file {self._login_file} wants one line, USER:PASSWORD")
        return text

    def _agree_on_secret(self) -> bytes:
        assert self._store is not None
        with contextlib.suppress(Conflict):  # somebody was faster
            self._store.put(f"{self._key}/secret", secrets.token_hex(32).encode(), expect=0)
        entry = self._store.get(f"{self._key}/secret")
        if entry is None:  # a job of that name ended this moment
            return self._agree_on_secret()
        return entry.value

    def _register(self) -> None:
        assert self._store is not None and self._identity is not None
        self._lease = self._store.lease(self._ttl)
        key = f"{self._key}/nodes/{self._identity.name}"
        self._store.put(key, self._door.encode(), expect=None, lease=self._lease)
        if self._sits:
            self._write_chair()

    def _write_chair(self) -> None:
        """Conflict if somebody else carries the coordinator."""
        assert self._store is not None and self._identity is not None
        value = codec.dumps(Chair(self._identity.name, self._door))
        self._store.put(f"{self._key}/coordinator", value, expect=0, lease=self._lease)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 4)
            assert self._lease is not None
            try:
                await asyncio.to_thread(self._lease.renew)
            except LeaseEnded:
                with contextlib.suppress(StoreError):
                    await asyncio.to_thread(self._register)
            except StoreError:
                continue  # etcd is away; the next round tells

    # --- afterwards -------------------------------------------------------------------------

    async def attend(self, node: Node) -> None:
        while True:
            self._sits = node.hosted is not None
            chair = None if self._sits else await self._try(self._chair)
            if chair is None:
                if not self._sits and not node.leaving:
                    await self._claim(node)
            elif chair.host != node.identity.name:
                node.seat.take(chair.address)
                await node.seat.doubted()
                await self._see_off(chair)
            else:  # ours, from a time that is over
                await self._try(functools.partial(self._unseat, chair))
            await asyncio.sleep(_PAUSE)

    async def depart(self, complete: bool) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        if self._store is None:
            return
        work = asyncio.create_task(asyncio.to_thread(self._clear_up, complete))
        await asyncio.wait([work], timeout=_DEPART_SECONDS)
        self._store.close()  # whoever still waits for an answer is woken
        with contextlib.suppress(MidflightError):
            await work

    async def _try(self, work: Callable[[], _T]) -> _T | None:
        """Work in a thread; None also if etcd is away, or somebody else was faster."""
        try:
            return await asyncio.to_thread(work)
        except StoreError:
            return None

    def _chair(self) -> Chair | None:
        assert self._store is not None
        entry = self._store.get(f"{self._key}/coordinator")
        return codec.decode(Chair, codec.loads(entry.value)) if entry is not None else None

    async def _see_off(self, chair: Chair) -> None:
        """It did not answer: wait until it does, or its entry is gone.

        Where nobody listens any more, its lease need not be waited for. If it was alive all the
        same, its next write to the state conflicts, and it gives way.
        """
        refused = 0
        while await self._try(self._chair) == chair:
            answer = (await look(chair.address)).answer
            if answer is Answer.COORDINATOR:
                return
            refused = refused + 1 if answer is Answer.NOBODY else 0
            if refused == _REFUSED_OFTEN:
                await self._try(functools.partial(self._unseat, chair))
            await asyncio.sleep(_PAUSE)

    # --- carrying the coordinator -----------------------------------------------------------

    def _unseat(self, chair: Chair) -> None:
        assert self._store is not None
        entry = self._store.get(f"{self._key}/coordinator")
        if entry is not None and entry.value == codec.dumps(chair):
            self._store.delete(f"{self._key}/coordinator", expect=entry.version)

    async def _claim(self, node: Node) -> None:
        found = await self._try(self._sit_down)
        if found is None:
            return
        others = [name for name in found.doors if name != node.identity.name]
        answers = await asyncio.gather(*(look(found.doors[name]) for name in others))
        alive = {
            n for n, seen in zip(others, answers, strict=True) if seen.answer is not Answer.NOBODY
        }
        state = found.state
        if state is not None and not alive and not node.met:
            state = None  # left by a job that died as a whole
        if state is None or state.phase in _ENDED:
            state = initial(node.identity.spec, now())
        alive.add(node.identity.name)
        gone = [name for name in state.hosts if name not in alive]
        if state.hosts:
            say("warning: the node that carried the coordinator is gone; this one carries it on")
        node.host(state, lambda peers: found.saving, gone)

    def _sit_down(self) -> "_Found":
        """In a thread: write our name, and read what there is to carry on."""
        assert self._store is not None
        self._write_chair()
        prefix = f"{self._key}/nodes/"
        entries = self._store.watch(prefix).entries.items()
        doors = {key.removeprefix(prefix): entry.value.decode() for key, entry in entries}
        saving = Saving(self._store, self._key, self._secret)
        return _Found(saving.load(now()), saving, doors)

    def _clear_up(self, complete: bool) -> None:
        store, identity = self._store, self._identity
        if store is None or identity is None:
            return
        chair = self._chair()
        if complete and chair is not None and chair.host == identity.name:
            forget(store, self._key)
            store.delete(f"{self._key}/secret", expect=None)
        if self._lease is not None:
            self._lease.release()


@dataclass(frozen=True)
class _Found:
    state: State | None
    saving: Saving
    doors: dict[str, str]  # of the nodes that are there, by name
