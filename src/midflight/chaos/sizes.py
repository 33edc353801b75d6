"""The size of what is struck, and how to change it: members of a run, or workers of a job."""

import asyncio
from functools import partial
from typing import Protocol

from midflight.coordinator.client import CoordinatorClient
from midflight.deadlines import MONKEY_RESIZE
from midflight.errors import Refused, Unreachable
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.messages import ResizeRequested, Status
from midflight.quantities import counted

_WAIT = 1.0  # of one question to the server, so that Ctrl-C is heard
_MORE = 2  # workers that a job gets beyond those it has: whether there is room, the server says
Bounds = tuple[int, int, int]  # the size now, the least and the most


class Sizes(Protocol):
    async def bounds(self, status: Status) -> Bounds: ...

    async def change(self, to: int) -> str:
        """What became of it, in words."""
        ...


class RunSizes:
    def __init__(self, client: CoordinatorClient) -> None:
        self._client = client

    async def bounds(self, status: Status) -> Bounds:
        size = status.wanted
        if any(host.cooling for host in status.hosts):  # newcomers would have to wait for that
            return size, status.min_np, min(size, status.max_np)
        slots = sum(host.slots for host in status.hosts if host.connected)
        return size, status.min_np, min(status.max_np, slots)

    async def change(self, to: int) -> str:
        request = ResizeRequested(to, 0, 0, (), MONKEY_RESIZE)
        try:
            ended = await self._client.resize(request)
        except Unreachable as error:
            return str(error)
        return ended.detail if ended.ok else f"taken back: {ended.detail}"


class JobSizes:
    def __init__(self, client: ClusterApi, namespace: str, name: str) -> None:
        self._client = client
        self._of = (namespace, name)

    async def bounds(self, status: Status) -> Bounds:
        job = await asyncio.to_thread(self._client.job, *self._of)
        size, most = job["workers"], max(job["maxWorkers"], job["workers"])
        return size, job["minWorkers"], min(most, size + _MORE)

    async def change(self, to: int) -> str:
        wish = {"to": to, "timeout": MONKEY_RESIZE, "partial": False}
        try:
            operation = await asyncio.to_thread(self._client.scale, *self._of, wish)
            while operation["progress"] not in ("succeeded", "failed"):
                name, changes = operation["id"], operation["changes"]
                ask = partial(self._client.operation, *self._of, name, changes, _WAIT)
                operation = await asyncio.to_thread(ask)
        except (Refused, Unreachable) as error:
            return f"not done: {error}"
        if operation["progress"] == "failed":
            return f"taken back: {operation['message']}"
        return (
            operation["message"] or f"{operation['from']} to {counted(operation['to'], 'worker')}"
        )
