"""The coordinator inside a torchrun process, and its state in the memory of all the others.

Without a store that outlives the node, the state of the job is spread: every agent keeps the newest
one, and what it led to is announced only when they have it. Whoever carries the coordinator on
starts from there.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from midflight import async_timeout
from midflight.coordinator.audit import AuditTrail
from midflight.coordinator.connections import Door
from midflight.coordinator.core import events
from midflight.coordinator.core.state import Phase, State
from midflight.coordinator.exit_codes import REPLACED
from midflight.coordinator.output import Printer
from midflight.coordinator.peers import Peers
from midflight.coordinator.saved_state import Saves, written
from midflight.coordinator.shell import Shell, now
from midflight.errors import StoreUnavailable
from midflight.protocol.messages import KeepState

_KEEP_SECONDS = 2.0  # for agents to say that they have the state
_LOOK_SECONDS = 0.1
_RETIRE_SECONDS = 1.0


def _is_settled(state: State, leaving: str) -> bool:
    """Whether the job is under way without that host."""
    members = state.members.values()
    return state.phase is Phase.STABLE and all(m.host != leaving and m.pid for m in members)


class Spreading:
    """Saves the state by giving it to all agents."""

    def __init__(self, peers: Peers, host: str, secret: bytes, number: int) -> None:
        self._peers = peers
        self._host = host
        self._secret = secret
        self._number = number
        self._loop = asyncio.get_running_loop()

    def save(self, state: State, now: float) -> None:
        """Called in a thread of the shell's; returns when those who answer have it."""
        work = asyncio.run_coroutine_threadsafe(self._spread(state), self._loop)
        try:
            work.result(_KEEP_SECONDS + 5.0)
        except TimeoutError:
            raise StoreUnavailable("the agents do not take the state") from None

    def tell(self, state: State) -> int:
        self._number += 1
        text = written(state, now(), state.spec.name, self._secret).decode()
        self._peers.tell_all_agents(KeepState(self._number, self._host, text))
        return self._number

    async def _spread(self, state: State) -> None:
        # One that does not answer is silent, and will be lost soon; nobody waits for longer.
        await self._peers.all_keep(self.tell(state), _KEEP_SECONDS)


class Hosted:
    """A coordinator that runs here."""

    def __init__(
        self,
        state: State,
        secret: bytes,
        make_saving: Callable[[Peers], Saves],
        audit: Path | None = None,
        *,
        tls: bool = False,
    ) -> None:
        """`audit`: the file that says who asked for what; None: nobody keeps it."""
        self._trail = AuditTrail(state.spec.name, audit)
        self._printer = Printer(state.spec, verbose=False)
        peers = Peers()
        self.make_saving = make_saving
        self._saving = make_saving(peers)
        self.shell = Shell(state, peers, self._saving, self._printer)
        self.door = Door(self.shell, secret, self._printer, self._trail, tls=tls)
        self._tasks = [
            asyncio.create_task(self.shell.tick()),
            asyncio.create_task(self.shell.save()),
            asyncio.create_task(self._tell_who_is_there()),
        ]
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def over(self) -> int | None:
        """How the job ended; None: it goes on elsewhere."""
        waiting: list[asyncio.Future[Any]] = [self.shell.over, self._closed, *self._tasks]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a tick or a save that failed must not pass in silence
        if self._closed in done:
            return None
        code = self.shell.over.result()
        self._trail.close()
        return None if code == REPLACED else code

    @property
    def is_spread(self) -> bool:
        """Whether its state is in the memory of agents, and nowhere else."""
        return isinstance(self._saving, Spreading)

    def lose_host(self, name: str) -> None:
        """Its node, which carried the coordinator until now, has died."""
        self.shell.dispatch(events.HostLost(now(), name, dead=True))

    def stop(self, code: int) -> None:
        self.shell.dispatch(events.StopAsked(now(), "interrupted", code))

    def others(self, own: str) -> list[str]:
        return [name for name in self.shell.peers.agents if name != own]

    async def retire(self, own: str) -> None:
        """Leave the job to the others, with the newest state, and nothing half done."""
        with contextlib.suppress(TimeoutError):
            async with async_timeout.timeout(_RETIRE_SECONDS):
                while not _is_settled(self.shell.state, own):  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(_LOOK_SECONDS)
                await self.shell.save_now()
        self.close()

    def close(self) -> None:
        self.shell.retired = True
        if not self._closed.done():
            self._closed.set_result(None)
        for task in self._tasks:
            task.cancel()
        self._trail.close()
        peers = self.shell.peers
        for wire in (*peers.agents.values(), *peers.members.values(), *peers.clients.values()):
            wire.abort()

    async def _tell_who_is_there(self) -> None:
        """Agents know one another from the state, so it is spread when one comes or goes too."""
        told: object = None
        while True:
            there = tuple(
                (host.name, host.door, host.connected, host.leaving)
                for host in self.shell.state.hosts.values()
            )
            if there != told and isinstance(self._saving, Spreading):
                self._saving.tell(self.shell.state)
                told = there
            await asyncio.sleep(_LOOK_SECONDS)
