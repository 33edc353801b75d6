"""The rendezvous of the nodes among themselves, with no other server.

The node at the endpoint carries the coordinator; every agent keeps the newest state of the job, in
which all the others stand. When the coordinator is gone, the first of them that is still there
carries it on, and the others find it, because they know who that is. A node that comes later knows
the endpoint alone: whoever carries the coordinator takes the endpoint over if it is on this
machine, and otherwise tells a torchrun that is started there anew where the job is.

There is no third party. A network that falls in two, each part with enough nodes, makes two jobs;
whoever must rule that out uses etcd.
"""

import asyncio
import contextlib
import secrets
import socket
import time
from dataclasses import replace

from midflight import async_timeout
from midflight.compat.torchelastic.hosted import Spreading
from midflight.compat.torchelastic.node_protocol import Arrival, Identity, Node
from midflight.compat.torchelastic.places import (
    address_of,
    is_loopback,
    is_this_machine,
    listen,
    listen_anywhere,
)
from midflight.compat.torchelastic.probe import Answer, Seen, look
from midflight.compat.torchelastic.rendezvous import Rendezvous
from midflight.compat.torchelastic.secret import secret_of, warning
from midflight.console import say
from midflight.coordinator.core.state import Phase, State, initial
from midflight.coordinator.peers import Peers
from midflight.coordinator.saved_state import Saves
from midflight.coordinator.shell import now
from midflight.errors import MidflightError, UsageError
from midflight.protocol.messages import JobLives, KeepState, Status, StatusRequested
from midflight.protocol.wire import dial
from midflight.store.etcd_address import Endpoint

_PAUSE = 0.1
_REUNITE_SECONDS = 0.5  # between two looks at an endpoint that somebody may have come back to
_MOST_RIVALS = 16  # the last that were lost
_ENDED = (Phase.SUCCEEDED, Phase.FAILED)


class C10dMeeting:
    def __init__(self, rendezvous: Rendezvous, environ: dict[str, str]) -> None:
        self._rendezvous = rendezvous
        self._environ = environ
        self._hosts_first = False  # whether this node carries the coordinator from the start
        self._own: set[str] = set()  # addresses at which this very process listens
        self._comparing: asyncio.Task[None] | None = None

    # --- the start --------------------------------------------------------------------------

    async def arrive(self, identity: Identity) -> Arrival:
        meeting = self._rendezvous
        local = all(is_loopback(endpoint.host) for endpoint in meeting.endpoints)
        secret = secrets.token_hex(32).encode()
        if not meeting.alone:
            secret = secret_of(meeting.run_id, local, self._environ)
            if line := warning(meeting.run_id, local, self._environ):
                say(line)
        claimed = self._claim_endpoint()
        self._hosts_first = claimed is not None
        signpost = claimed if meeting.workers_port is not None else None
        listener = claimed if signpost is None else None
        if listener is None:
            listener = listen_anywhere(identity.address)
        door = address_of(listener, identity.address)
        self._own.add(door)
        return Arrival(secret, listener, door, signpost)

    def _claim_endpoint(self) -> socket.socket | None:
        """The endpoint's socket, if this is the machine, and nobody has it yet."""
        must = self._rendezvous.is_host
        if self._rendezvous.backend == "static" and must is None:
            must = self._rendezvous.node_rank == 0
        for endpoint in self._rendezvous.endpoints:
            if must is False or (must is None and not is_this_machine(endpoint.host)):
                continue
            try:
                listener = listen(endpoint.host, endpoint.port)
            except OSError as error:
                if must:
                    raise UsageError(
                        f"cannot listen at --rdzv-endpoint {endpoint}: {error.strerror or error}"
                    ) from None
                continue
            self._own.add(str(endpoint))
            return listener
        return None

    # --- afterwards -------------------------------------------------------------------------

    async def attend(self, node: Node) -> None:
        if self._hosts_first:
            self._host(node, initial(node.identity.spec, now()), None)
        while True:
            if node.hosted is not None:
                await self._while_hosting(node)
            elif (address := await self._search(node)) is not None:
                node.seat.take(address)
                await node.seat.doubted()
            else:
                self._take_over(node)

    async def depart(self, complete: bool) -> None:
        return None

    def _host(self, node: Node, state: State, kept: KeepState | None) -> None:
        def spreading(peers: Peers) -> Saves:
            return Spreading(peers, node.identity.name, node.secret, kept.number if kept else 0)

        lost = [kept.host] if kept is not None else []
        hosted = node.host(state, spreading, lost)
        hosted.shell.on_elsewhere = lambda address: self._hear_of_another(node, address)

    def _hear_of_another(self, node: Node, address: str) -> None:
        """Believed at once while nothing has begun here; of two that have, the earlier yields."""
        if node.hosted is not None and node.hosted.shell.state.launched_at is None:
            _yield_to(node, address)
        elif self._comparing is None or self._comparing.done():
            self._comparing = asyncio.create_task(_yield_to_later(node, address))

    def _take_over(self, node: Node) -> None:
        kept, state = node.kept, node.kept_state()
        assert kept is not None and state is not None
        if state.phase in _ENDED:
            node.job_ended(state.exit_code or 0)
        else:
            say("warning: the node that carried the coordinator is gone; this one carries it on")
            self._host(node, replace(state, serial=_far_from(state.serial)), kept)

    async def _while_hosting(self, node: Node) -> None:
        """Be found at the endpoint, or by whoever is there."""
        while node.hosted is not None:
            for endpoint in self._rendezvous.endpoints:
                if str(endpoint) not in self._own and endpoint.port:
                    await self._reunite(node, endpoint)
            await _meet_rival(node)
            await asyncio.sleep(_REUNITE_SECONDS)

    async def _reunite(self, node: Node, endpoint: Endpoint) -> None:
        may_host = self._rendezvous.is_host is not False and self._rendezvous.workers_port is None
        if may_host and is_this_machine(endpoint.host):
            with contextlib.suppress(OSError):
                node.listen_too(listen(endpoint.host, endpoint.port))
                self._own.add(str(endpoint))
                return
        found = await look(str(endpoint))
        other = str(endpoint) if found.answer is Answer.COORDINATOR else found.hint
        if other in ("", node.door):
            return
        with contextlib.suppress(MidflightError, TimeoutError):  # gone again, or somebody else's
            wire = await dial(other, "client", "torchrun", node.secret)
            wire.send(JobLives(node.door))
            try:
                async with async_timeout.timeout(1.0):
                    await wire.finish()
            finally:
                wire.abort()

    # --- searching --------------------------------------------------------------------------

    async def _search(self, node: Node) -> str | None:
        """Where the coordinator is; None: it is this node's turn."""
        began = time.monotonic()
        former = [node.seat.address] if node.seat.address is not None else []
        hints: list[str] = []
        while True:
            before, after = _line(node)
            places = [*former, *map(str, self._rendezvous.endpoints), *before, *after, *hints]
            known = [p for p in dict.fromkeys(places) if p not in self._own]
            seen = dict(zip(known, await asyncio.gather(*map(look, known)), strict=True))
            for place in known:
                if seen[place].answer is Answer.COORDINATOR and await _is_ours(node, place):
                    return place
            patient = time.monotonic() - began < self._rendezvous.lease
            if _is_heir(node) and _nobody_is_first(seen, former, before, patient):
                return None
            hints = [found.hint for found in seen.values() if found.hint]
            await asyncio.sleep(_PAUSE)


def _nobody_is_first(
    seen: dict[str, Seen], former: list[str], before: list[str], patient: bool
) -> bool:
    """Whether neither the former coordinator nor anybody in line before this node is there."""
    ahead = [seen[place].answer for place in before if place in seen]
    silent = [place for place in (*former, *before) if place in seen]
    if patient and any(seen[place].answer is Answer.SILENT for place in silent):
        return False
    return Answer.STANDBY not in ahead


def _far_from(serial: int) -> int:
    """Where this line of names begins: the one before it may be alive still, and name members too.

    A network that fell in two, or a node that stood still, makes two lines out of one.
    """
    return (serial // 1000 + 1 + secrets.randbelow(1000)) * 1000


async def _meet_rival(node: Node) -> None:
    """Yield to a node that has carried the job on while this one was cut off, or stood still.

    It looks for this one in the same way; of two, the one with the earlier generation yields.
    """
    for door in _doors_of_lost(node):
        if node.hosted is not None and (await look(door)).answer is Answer.COORDINATOR:
            await _yield_to_later(node, door)


async def _yield_to_later(node: Node, door: str) -> None:
    """If the coordinator there is further than the one here."""
    with contextlib.suppress(MidflightError, TimeoutError):
        generation = await _generation_at(door, node.secret)
        hosted = node.hosted
        if hosted is None:
            return
        if (generation, door) > (hosted.shell.state.generation, node.door):
            say("warning: the job has gone on elsewhere; joining it there")
            _yield_to(node, door)


def _doors_of_lost(node: Node) -> list[str]:
    if node.hosted is None:
        return []
    lost = (host for host in node.hosted.shell.state.hosts.values() if not host.connected)
    return [host.door for host in lost if host.door not in ("", node.door)][-_MOST_RIVALS:]


async def _generation_at(door: str, secret: bytes) -> int:
    wire = await dial(door, "client", "torchrun", secret)
    try:
        wire.send(StatusRequested())
        async with async_timeout.timeout(1.0):
            answer = await wire.receive()
    finally:
        wire.abort()
    return answer.generation if isinstance(answer, Status) else -1


async def _is_ours(node: Node, place: str) -> bool:
    """A stranger may have taken a port that was the job's; the first time, the agent will tell."""
    if node.kept is None:
        return True
    try:
        (await dial(place, "client", "torchrun", node.secret)).abort()
    except MidflightError:
        return False
    return True


def _yield_to(node: Node, address: str) -> None:
    if node.hosted is not None and address != node.door:
        node.hosted.close()
        node.hosted = None
        node.seat.take(address)


def _heirs(node: Node) -> list[tuple[str, str]]:
    """Name and door of those who can carry the coordinator on, the first in line first."""
    state = node.kept_state()
    if node.kept is None or state is None:
        return []
    # `awaited` is what `connected` becomes when a state is read.
    return [
        (host.name, host.door)
        for host in state.hosts.values()
        if host.awaited and host.door and not host.leaving and host.name != node.kept.host
    ]


def _is_heir(node: Node) -> bool:
    return not node.leaving and any(name == node.identity.name for name, _ in _heirs(node))


def _line(node: Node) -> tuple[list[str], list[str]]:
    """The doors of those before this node in line, and of those behind it."""
    before: list[str] = []
    after: list[str] = []
    passed = False
    for name, door in _heirs(node):
        if name == node.identity.name:
            passed = True
        else:
            (after if passed else before).append(door)
    return before, after
