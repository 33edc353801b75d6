"""Connections between simulated processes: transports under the real asyncio streams.

Bytes arrive in order, after a delay. Between hosts that are cut off from each other they wait, as
TCP would send them again; a connection that is half open loses them, and nobody is told. The kernel
of a host goes on while a process is stopped: connections are accepted and bytes arrive, only nobody
reads them. When a process ends its kernel closes its connections, unless the host itself is lost.
Between two hosts somebody may change frames (`frames`).
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from tests.simulation.loop import PROCESS, Process, SimLoop

HELLO, WELCOME = 1, 2  # frames of the handshake: of the one who dials, and of the other
SYN_AGAIN = 0.2  # seconds between two attempts of the kernel to reach a host
_KERNEL = contextvars.Context()


class Network:
    def __init__(self, loop: SimLoop, rng: random.Random, latency: float) -> None:
        self._loop = loop
        self._rng = rng
        self._latency = latency
        self._listeners: dict[tuple[str, int], tuple[Process, Callable[[], Any]]] = {}
        self._cuts: dict[frozenset[str], int] = {}  # how often they are cut
        self._slow: dict[str, float] = {}  # by host: what is added to each delay
        self.lost: set[str] = set()  # hosts that are gone, with all that was on them
        self.endpoints: dict[Endpoint, None] = {}  # those that are open, in the order of opening
        self._left: dict[Endpoint, None] = {}  # not open any more; the kernel sends what they said

    # --- what hosts can do ----------------------------------------------------------------------

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> "Listener":
        process = PROCESS.get()
        self._listeners[host, port] = (process, factory)
        process.on_end.append(lambda _: self._unlisten(host, port, process))
        return Listener(lambda: self._unlisten(host, port, process))

    def _unlisten(self, host: str, port: int, process: Process) -> None:
        if self._listeners.get((host, port), (None,))[0] is process:
            del self._listeners[host, port]

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        process = PROCESS.get()
        await asyncio.sleep(self._delay(process.host, host))
        while not self.reachable(process.host, host):  # noqa: ASYNC110 - as the kernel does
            await asyncio.sleep(SYN_AGAIN)
        if (host, port) not in self._listeners:
            raise ConnectionRefusedError(111, "Connection refused")
        listener, make = self._listeners[host, port]
        ours, theirs = Endpoint(self, process), Endpoint(self, listener)
        ours.peer, theirs.peer = theirs, ours
        ours.bare, theirs.bare = HELLO, WELCOME
        theirs.begin(make)
        protocol = ours.protocol = factory()
        protocol.connection_made(ours)
        return ours, protocol

    def reachable(self, one: str, other: str) -> bool:
        if one in self.lost or other in self.lost:
            return False
        return one == other or not self._cuts.get(frozenset((one, other)))

    def _delay(self, one: str, other: str) -> float:
        base = self._latency if one != other else self._latency / 10
        return (
            base * self._rng.uniform(0.5, 1.5)
            + max(self._slow.get(one, 0.0), self._slow.get(other, 0.0)) * self._rng.random()
        )

    def leave(self, endpoint: "Endpoint") -> None:
        """It is open no more."""
        self.endpoints.pop(endpoint, None)
        if endpoint.waiting:
            self._left[endpoint] = None

    # --- faults ---------------------------------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        self._cuts[pair] = self._cuts.get(pair, 0) + 1

    def heal(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        self._cuts[pair] -= 1
        left, self._left = self._left, {}
        for endpoint in (*self.endpoints, *left):
            endpoint.send_again()

    def slow(self, host: str, seconds: float) -> None:
        self._slow[host] = seconds

    def lose(self, host: str) -> None:
        self.lost.add(host)

    def reset(self, endpoint: "Endpoint") -> None:
        """Somebody between the two has forgotten the connection, and tells both."""
        for end in (endpoint, endpoint.peer):
            end.receive_soon("rst", b"")

    @contextmanager
    def held(self, sender: Process, receivers: Collection[Process]) -> Iterator[None]:
        """Meanwhile nothing arrives of what the sender says to these."""
        ends = [e for e in self.endpoints if e.process is sender and e.peer.process in receivers]
        for endpoint in ends:
            endpoint.held = True
        yield
        for endpoint in ends:
            endpoint.held = False
            endpoint.send_again()

    def make_half_open(self, endpoint: "Endpoint") -> None:
        endpoint.silent = endpoint.peer.silent = True

    # --- bytes ----------------------------------------------------------------------------------

    def send(self, sender: "Endpoint", kind: str, data: bytes) -> None:
        arrival = self._loop.now + self._delay(sender.process.host, sender.peer.process.host)
        sender.arrival = max(sender.arrival + 1e-7, arrival)
        sender.in_flight += len(data)
        self._loop.call_at(sender.arrival, self.deliver, sender, kind, data, context=_KERNEL)

    def deliver(self, sender: "Endpoint", kind: str, data: bytes) -> None:
        if sender.silent:
            return
        if (
            sender.held
            or sender.waiting
            or not self.reachable(sender.process.host, sender.peer.process.host)
        ):
            sender.waiting.append((kind, data))
            if sender not in self.endpoints:
                self._left[sender] = None
            return
        sender.in_flight -= len(data)
        sender.peer.receive_soon(kind, data)

    def later(self, process: Process, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon(call, *args, context=process.context)


class Listener:
    """What `start_server` gets: it can be closed."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close
        self.sockets: tuple[()] = ()


class Endpoint(asyncio.Transport):
    """One end of a connection."""

    peer: "Endpoint"

    def __init__(self, network: Network, process: Process) -> None:
        super().__init__()
        self._network = network
        self.process = process
        self.protocol: Any = None
        self.arrival = 0.0  # when the last thing sent will be there
        self.in_flight = 0
        self.silent = False  # half open
        self.held = False  # what it sends is late, as if packets were lost and sent again
        self.waiting: list[tuple[str, bytes]] = []  # the hosts are cut off
        self.bare = 0  # so many frames more that it sends have no MAC
        self.change: Callable[[bytes], list[bytes]] | None = None  # what is done to its frames
        self._closing = False
        self._lost = False
        self._reading = True
        self._unread: list[tuple[str, bytes]] = []
        network.endpoints[self] = None
        process.on_end.append(self._process_ended)

    def begin(self, factory: Callable[[], Any]) -> None:
        self._network.later(self.process, self._accepted, factory)

    def _accepted(self, factory: Callable[[], Any]) -> None:
        self.protocol = factory()
        self.protocol.connection_made(self)

    def _process_ended(self, process: Process) -> None:
        if not self._closing and process.host not in self._network.lost:
            self._network.send(self, "fin", b"")
        self._closing = self._lost = True
        self._network.leave(self)

    # --- what arrives ---------------------------------------------------------------------------

    def send_again(self) -> None:
        waiting, self.waiting = self.waiting, []
        for kind, data in waiting:
            self._network.deliver(self, kind, data)

    def receive_soon(self, kind: str, data: bytes) -> None:
        if self._closing and kind == "data":
            if self.process.host not in self._network.lost:
                self._network.send(self, "rst", b"")
            return
        self._network.later(self.process, self._receive, kind, data)

    def _receive(self, kind: str, data: bytes) -> None:
        if self._lost or (self._closing and kind != "rst"):
            return
        if kind == "rst":
            self._closing = True
            self._lose(ConnectionResetError(104, "Connection reset by peer"))
        elif not self._reading:
            self._unread.append((kind, data))
        elif kind == "data":
            self.protocol.data_received(data)
        elif not self.protocol.eof_received():
            self.close()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._network.leave(self)
            self.process.on_end.remove(self._process_ended)
            self.protocol.connection_lost(error)

    # --- what streams ask of a transport ----------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return (self.peer.process.host, self.peer.process.pid)
        if name == "sockname":
            return (self.process.host, self.process.pid)
        return default

    @property
    def is_protected(self) -> bool:
        return self.bare == 0

    def write(self, data: Any) -> None:
        """The wire writes a frame at a time."""
        if self._closing or not self.process.alive:
            return
        self.bare = max(0, self.bare - 1)
        for frame in [bytes(data)] if self.change is None else self.change(bytes(data)):
            self._network.send(self, "data", frame)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.in_flight

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and self.process.alive:
            self._network.send(self, "fin", b"")

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._shut("fin")

    def abort(self) -> None:
        self._shut("rst")

    def _shut(self, kind: str) -> None:
        if not self._closing and self.process.alive:
            self._closing = True
            self._network.send(self, kind, b"")
            self._network.later(self.process, self._lose, None)

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        unread, self._unread = self._unread, []
        for kind, data in unread:
            self._receive(kind, data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nobody waits here for what has been written."""

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol
