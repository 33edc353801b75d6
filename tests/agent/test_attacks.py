"""Somebody on the way between an agent and its coordinator, who lets the handshake pass."""

import asyncio
import contextlib
from pathlib import Path

from midflight.protocol.messages import AgentJoined, StartMember
from midflight.protocol.wire import encode_frame
from tests.agent.recording_coordinator import RecordingCoordinator, scenario, start_agent


class OnTheWay:
    """Passes everything on, and can say something of its own to the agent."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._to_agent: list[asyncio.StreamWriter] = []
        self._passing: set[asyncio.Task[None]] = set()

    async def listen(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def inject(self, data: bytes) -> None:
        self._to_agent[0].write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._to_agent.append(writer)
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async def close(self) -> None:
        self._server.close()
        for writer in self._to_agent:
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


@scenario
async def test_an_order_put_in_by_somebody_on_the_way_is_not_carried_out(tmp_path: Path) -> None:
    coordinator = RecordingCoordinator()
    await coordinator.listen()
    attacker = OnTheWay(coordinator.port)
    agent = await start_agent(tmp_path, await attacker.listen())
    try:
        await coordinator.first(AgentJoined)
        order = StartMember("m9", 0, ("touch", str(tmp_path / "owned")), "run", 60, 30, "", {})
        attacker.inject(encode_frame(order) + bytes(16))
        async with asyncio.timeout(20):
            while coordinator.count(AgentJoined) < 2:
                assert not (tmp_path / "owned").exists()
                await asyncio.sleep(0.02)
    finally:
        agent.kill()
        _, said = await agent.communicate()
        await attacker.close()
        await coordinator.vanish()
    assert not (tmp_path / "owned").exists()
    assert b"frame" in said and b"inserted it" in said
