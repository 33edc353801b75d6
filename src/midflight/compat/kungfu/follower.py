"""The launcher's side of a config store: whoever writes another cluster resizes the job.

Asked a few times a second, as a discovery script would be. Newcomers are taken in before anybody
leaves, and a host is let go when its last member has left, so that a cluster may be replaced as a
whole. What the store says stays wanted: a change that was taken back is asked for again later. A
size that was asked for by other means is written into the store, so that both keep in step. While
the store says nothing, or nothing usable, the last cluster holds.
"""

import asyncio
import time
from functools import partial
from typing import Any

from midflight.compat.kungfu.assignment import Step, as_it_is, assign, next_step
from midflight.compat.kungfu.cluster import Address
from midflight.compat.kungfu.config import ConfigStoreClient, Stored
from midflight.console import say
from midflight.coordinator.client import CoordinatorClient
from midflight.coordinator.core.state import Phase
from midflight.errors import ConnectionLost, MidflightError, Refused, Unreachable
from midflight.protocol.messages import HostsChanged, ResizeRequested, Status
from midflight.run.dial import call_async
from midflight.run.hosts import Hosts
from midflight.rundir import RunDir

AGAIN_SECONDS = 10.0  # before a change that was taken back is asked for again
_CALM = (Phase.STABLE.value, Phase.PREPARING.value)


class Follower:
    pause = 0.2

    def __init__(self, client: ConfigStoreClient, first: Stored, folder: RunDir) -> None:
        self._client = client
        self._folder = folder
        self._coordinator = CoordinatorClient(partial(call_async, folder))
        self._stored = first
        self._true = first  # the last cluster that has become true; at the start, that will
        self._done = ""  # its tag
        self._addresses: dict[str, Address] = {}  # by member, of those who are there
        self._hosts: Hosts = first.cluster.slots
        self._asking: asyncio.Task[None] | None = None
        self._again_at = 0.0
        self._said = self._trouble = ""
        self.cleared = False  # somebody has taken all workers away
        self.stages = [_stage(first, 0)]  # the clusters that have become true

    async def look(self) -> Hosts:
        await self._read()
        if self._trouble:  # not said when the job ends before the next look
            say(f"warning: {self._trouble}")
            self._trouble = ""
        if self._asking is not None and not self._asking.done():
            return self._hosts
        try:
            status = await self._coordinator.status()
        except MidflightError:
            return self._hosts  # it has yet to come up, or is being started again
        if status.phase in _CALM and time.monotonic() >= self._again_at:
            try:
                await self._act(status)
            except MidflightError as error:
                self._taken_back(str(error))
        return self._hosts

    async def _act(self, status: Status) -> None:
        workers = self._stored.cluster.workers
        if not workers:
            await self._stop()
        elif self._done == self._stored.etag and status.wanted != len(workers):
            await self._write(status)
        else:
            self._settle(status)

    def _settle(self, status: Status) -> None:
        workers = self._stored.cluster.workers
        for known in (self._true.cluster.workers, workers):
            self._addresses = assign(known, status, self._addresses)
        step = next_step(workers, status, self._addresses)
        self._hosts = step.hosts
        if step.request is None:
            self._note_done(self._stored, status.step)
        else:
            asked = self._ask(step, step.request, self._stored, status.step)
            self._asking = asyncio.create_task(asked)

    def _note_done(self, stored: Stored, step: int) -> None:
        self._true, self._done = stored, stored.etag
        if self.stages[-1]["Version"] != stored.version:
            self.stages.append(_stage(stored, step))

    # --- the coordinator --------------------------------------------------------------------

    async def _ask(self, step: Step, request: ResizeRequested, stored: Stored, at: int) -> None:
        """Hosts first: newcomers must find their slots."""
        try:
            wire = await call_async(self._folder)
            try:
                wire.send(HostsChanged(dict(step.hosts)))
                await wire.finish()
            finally:
                wire.close()
            ended = await self._coordinator.resize(request)
        except MidflightError as error:
            self._taken_back(str(error))
        else:
            if ended.ok:
                self._note_done(stored, at)
            else:
                self._taken_back(ended.detail)

    def _taken_back(self, why: str) -> None:
        self._again_at = time.monotonic() + AGAIN_SECONDS
        self._trouble = f"version {self._stored.version} of the config is not true yet: {why}"

    async def _stop(self) -> None:
        if self.cleared:
            return
        self.cleared = True
        try:
            await self._coordinator.stop("the config store names no workers", complete=True)
        except ConnectionLost:
            self.cleared = False  # it was not heard

    # --- the store --------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            found = await asyncio.to_thread(self._client.get)
        except MidflightError as error:
            self._say(f"warning: {error}; going on with the last cluster")
            return
        if found is None:
            self._say("warning: the config store holds nothing; going on with the last cluster")
            return
        self._said = ""
        if found.etag != self._stored.etag:
            self._again_at = 0.0
        self._stored = found

    async def _write(self, status: Status) -> None:
        """Somebody has asked for another size by other means."""
        if status.phase != Phase.STABLE.value:
            return
        cluster = as_it_is(self._stored.cluster, status, self._addresses)
        try:
            await asyncio.to_thread(self._client.put, cluster, self._stored.etag)
        except (Refused, Unreachable) as error:
            self._say(f"warning: the config store was not told of {status.wanted} workers: {error}")

    def _say(self, line: str) -> None:
        """Once, until something else has to be said."""
        if line != self._said:
            say(line)
        self._said = line


def _stage(stored: Stored, progress: int) -> dict[str, Any]:
    return {"Version": stored.version, "Progress": progress, "Cluster": stored.cluster.to_json()}
