"""What the pods of a real node find at its addresses: the API server, and the cluster's names.

It runs beside the node, on this machine: only its sockets are in the node's network, where it has
made them. The API server listens on loopback here. What is said to the address of the Service
`kubernetes`, and on the node's own loopback, is carried to it byte for byte, so that a pod sees its
certificate and it sees the pod's token. A cluster's proxy would do the same with packets.
"""

import argparse
import asyncio
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import cast

from tests.kubernetes.plane import names
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.async_api import AsyncApi
from tests.kubernetes.plane.real_dns import Addresses, addresses, answer
from tests.kubernetes.plane.real_plan import DOMAIN, Plan
from tests.kubernetes.plane.sandbox import check, libc

_NEWNET = 0x40000000
_PIECE = 1 << 16
_HTTPS, _DNS = 443, 53


class Registry:
    """All pods and Services, and what their names mean."""

    def __init__(self, api: AsyncApi) -> None:
        self._api = api
        self._pods: dict[str, Json] = {}
        self._services: dict[str, Json] = {}
        self.known: Addresses = {}

    async def follow(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch("/api/v1/pods", self._pods))
            group.create_task(self._watch("/api/v1/services", self._services))

    async def _watch(self, path: str, there: dict[str, Json]) -> None:
        async for event, thing in self._api.watch(path):
            if event == "LISTED":
                there.clear()
                there.update({item["metadata"]["uid"]: item for item in thing["items"]})
            elif event == "DELETED":
                there.pop(thing["metadata"]["uid"], None)
            else:
                there[thing["metadata"]["uid"]] = thing
            self._look()

    def _look(self) -> None:
        backends = [found for pod in self._pods.values() if (found := names.backend(pod))]
        services = [found for each in self._services.values() if (found := names.service(each))]
        records = names.records(services, backends)
        self.known = addresses(DOMAIN, records, self._services.values())


class Answering(asyncio.DatagramProtocol):
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        said = answer(data, self._registry.known)
        if said is not None:
            self._transport.sendto(said, addr)


async def serve(plan: Plan, lines: list[socket.socket], questions: socket.socket) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            try:
                there, back = await asyncio.open_connection("127.0.0.1", plan.api_port)
            except OSError:
                return
            with closing(back):
                await asyncio.gather(_pour(reader, back), _pour(there, writer))

    registry = Registry(AsyncApi(Path(plan.kubeconfig)))
    for line in lines:
        await asyncio.start_server(carry, sock=line)
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(lambda: Answering(registry), sock=questions)
    await registry.follow()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:  # either end has hung up
        target.close()


def _sockets(plan: Plan, pid: int) -> tuple[list[socket.socket], socket.socket]:
    """Made in the network of another process; they stay there."""
    with open(f"/proc/{pid}/ns/net") as theirs, open("/proc/self/ns/net") as ours:
        check(libc.setns(theirs.fileno(), _NEWNET), "setns")
        lines = [socket.create_server(("127.0.0.1", plan.api_port))]
        lines.append(socket.create_server((plan.service, _HTTPS)))
        questions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        questions.bind((plan.node_ip, _DNS))
        check(libc.setns(ours.fileno(), _NEWNET), "setns")
    return lines, questions


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", type=Path)
    parser.add_argument("pid", type=int, help="a process of the node")
    given = parser.parse_args()
    plan = Plan.read(given.plan)
    os.chdir(plan.folder)
    lines, questions = _sockets(plan, given.pid)
    asyncio.run(serve(plan, lines, questions))


if __name__ == "__main__":
    main()
