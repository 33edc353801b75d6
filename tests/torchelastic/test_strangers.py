"""Strangers at the listeners of a torchrun: its door, perhaps the coordinator's, and its relay."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest

from midflight import descriptors
from midflight.compat.torchelastic.relay import Relay, Seat
from midflight.coordinator.admission import Strangers
from midflight.errors import MidflightError
from midflight.protocol.messages import Status, StatusRequested
from midflight.protocol.wire import dial, split_address
from tests.coordinator.served import SECRET, served
from tests.run.site import Site
from tests.torchelastic.nodes import Job, finish, meeting_on_loopback

DESCRIPTORS = 128
ROOM = 4


async def answers(address: str) -> bool:
    with contextlib.suppress(MidflightError, OSError):
        wire = await dial(address, "client", "", SECRET)
        wire.send(StatusRequested())
        answer = await wire.receive()
        wire.close()
        return isinstance(answer, Status)
    return False


def test_idle_strangers_at_the_relay_are_bounded_and_keep_nobody_out() -> None:
    async def story() -> None:
        async with served() as it:
            seat = Seat()
            seat.take(it.address)
            relay = Relay(seat)
            relay._strangers = Strangers(ROOM)
            address = await relay.open()
            idle = [await asyncio.open_connection(*split_address(address)) for _ in range(20)]
            ended = asyncio.as_completed([reader.read() for reader, _ in idle])
            async with asyncio.timeout(10):
                for _, end in zip(range(20 - ROOM), ended, strict=False):
                    await end
                while not await answers(address):  # noqa: ASYNC110 - it dials again
                    await asyncio.sleep(0.1)
            for _, writer in idle:
                writer.close()
            relay.close()

    asyncio.run(story())


@contextlib.contextmanager
def few_descriptors() -> Iterator[None]:
    """What is started here may raise its limit, and has to do so by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_more_connections_than_descriptors_neither_fill_the_log_of_torchrun_nor_end_its_job(
    site: Site,
) -> None:
    meeting = meeting_on_loopback()
    job = Job(site, "--nnodes=1", *meeting)
    with few_descriptors():
        node = job.start()
    job.await_size(node, size=1)
    soft, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    assert soft == descriptors.raised(soft, hard)
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    place = meeting[1].partition("=")[2]
    with contextlib.ExitStack() as idle:
        for _ in range(2 * DESCRIPTORS):
            with contextlib.suppress(OSError):
                where = split_address(place)
                idle.enter_context(socket.create_connection(where, timeout=1.0))
        node.says("cannot take another connection")
        job.stop()
        lines = finish(node)
    assert len(lines) < 60
