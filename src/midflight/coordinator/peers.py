"""The connections of agents, members and clients, by name. Sending never blocks."""

import asyncio
import contextlib
from collections.abc import Iterable

from midflight.errors import ProtocolError
from midflight.protocol.messages import FindPort
from midflight.protocol.wire import AsyncWire, encode_frame


class Peers:
    def __init__(self) -> None:
        self.agents: dict[str, AsyncWire] = {}
        self.members: dict[str, AsyncWire] = {}
        self.clients: dict[int, AsyncWire] = {}
        self._ports: dict[str, list[asyncio.Future[int]]] = {}
        self._kept: dict[str, int] = {}  # the number of the newest state that an agent has
        self._kept_more = asyncio.Event()
        self._no_agents = asyncio.Event()
        self._no_agents.set()

    def add_agent(self, name: str, wire: AsyncWire) -> None:
        self._replace(self.agents, name, wire)
        self._no_agents.clear()

    def add_member(self, name: str, wire: AsyncWire) -> None:
        self._replace(self.members, name, wire)

    @staticmethod
    def _replace(table: dict[str, AsyncWire], name: str, wire: AsyncWire) -> None:
        if old := table.get(name):
            old.abort()
        table[name] = wire

    def drop_agent(self, name: str, wire: AsyncWire) -> bool:
        """True if this was the agent's valid connection (and not one already replaced)."""
        if self.agents.get(name) is not wire:
            return False
        del self.agents[name]
        self._kept.pop(name, None)
        self._kept_more.set()  # nobody waits for it any longer
        for future in self._ports.pop(name, []):
            if not future.done():
                future.set_exception(KeyError(name))
        if not self.agents:
            self._no_agents.set()
        return True

    def drop_member(self, name: str, wire: AsyncWire) -> bool:
        if self.members.get(name) is not wire:
            return False
        del self.members[name]
        return True

    async def agents_gone(self) -> None:
        await self._no_agents.wait()

    def tell(self, names: Iterable[str], message: object) -> None:
        """The same message to several members; encoded once."""
        frame = encode_frame(message)
        for name in names:
            if wire := self.members.get(name):
                _send(wire, frame)

    def tell_agent(self, name: str, message: object) -> bool:
        wire = self.agents.get(name)
        if wire is None:
            return False
        _send(wire, encode_frame(message))
        return True

    def tell_all_agents(self, message: object) -> None:
        frame = encode_frame(message)
        for wire in self.agents.values():
            _send(wire, frame)

    def tell_client(self, ticket: int, message: object) -> None:
        if wire := self.clients.get(ticket):
            _send(wire, encode_frame(message))

    def state_kept(self, host: str, number: int) -> None:
        self._kept[host] = max(number, self._kept.get(host, 0))
        self._kept_more.set()

    async def all_keep(self, number: int, patience: float) -> list[str]:
        """Wait until all agents have the state of that number; those who do not in time."""
        deadline = asyncio.get_running_loop().time() + patience
        while late := [name for name in self.agents if self._kept.get(name, 0) < number]:
            self._kept_more.clear()
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return late
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kept_more.wait(), left)
        return []

    async def find_port(self, host: str) -> int:
        """Raises KeyError if there is no agent, or it hangs up."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not self.tell_agent(host, FindPort()):
            raise KeyError(host)
        self._ports.setdefault(host, []).append(future)
        return await future

    def port_found(self, host: str, port: int) -> None:
        waiting = self._ports.get(host)
        if not waiting:
            raise ProtocolError(f"agent {host} reported a port that was not requested")
        future = waiting.pop(0)
        if not future.done():
            future.set_result(port)


def _send(wire: AsyncWire, frame: bytes) -> None:
    """A peer that has stopped reading must not fill this process's memory."""
    if wire.overfull:
        wire.abort()
    else:
        wire.send_frame(frame)
