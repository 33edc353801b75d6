"""This machine: carries orders out with processes, and says what is there of each job.

It decides nothing. Each order becomes a piece of work in a lane of its job; what comes of it is
seen the next time one looks. Instances are found again by what their keepers have written, so that
this object can be thrown away and made anew at any time.
"""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path

from midflight.backends import words
from midflight.backends.local import chaos, code, logs, nodes
from midflight.backends.local.errands import Errands
from midflight.backends.local.folder import InstanceFolders
from midflight.backends.local.instances import Instances
from midflight.backends.local.interface import LogQuery
from midflight.backends.local.jobs import Jobs
from midflight.backends.local.processes import Keepers
from midflight.backends.place import Tell, Wake
from midflight.controller import commands, events
from midflight.controller.orders import Observed
from midflight.controller.roster import in_order
from midflight.controller.state import Cluster, Job, Node
from midflight.coordinator.client import Dial
from midflight.deadlines import INSTANCES_FOUND
from midflight.errors import MidflightError, NotFound
from midflight.protocol.views import GpuView
from midflight.run.dial import call_or_tell_end
from midflight.rundir import RunDir

HOSTS_AGAIN = 1.0  # seconds until a hostfile that could not be written is tried again

log = logging.getLogger("midflight.backends")


class LocalMachine:
    def __init__(self, home: Path, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._tell: Tell = lambda event: None
        self._keepers = Keepers(lambda folder, end: self._instances.has_ended(folder, end))
        self._jobs = Jobs(home.absolute(), sys.executable, self._keepers)
        self._instances = Instances(self._keepers, self._jobs, self._environ)
        self._errands = Errands()
        self._hosts: dict[str, dict[str, int]] = {}  # what hostfiles say, by job
        self._cluster = Cluster()  # as of the last order

    def nodes(self) -> tuple[Node, ...]:
        return (nodes.own_node(),)

    def gpus(self, node: Node) -> list[GpuView]:
        if node.virtual:
            return []
        return [
            {
                "index": index,
                "dutyCycle": each.duty,
                "memoryUsed": each.memory_used,
                "memoryTotal": each.memory_total,
            }
            for index, each in nodes.gpu_metrics().items()
        ]

    async def close(self) -> None:
        await self._errands.close()
        self._keepers.close()

    def folder(self, job: Job) -> str:
        return str(self._jobs.folder(job.key).path)

    def dial(self, job: Job) -> Dial:
        return partial(call_or_tell_end, RunDir(self._jobs.folder(job.key).run))

    def expects_run(self, job: Job) -> bool:
        run = RunDir(self._jobs.folder(job.key).run)
        return words.uses_midflight(job.spec.command, job.spec.run_in) or run.has_spec

    def logs(self, job: Job, query: LogQuery, over: Callable[[], bool]) -> AsyncIterator[bytes]:
        folders = InstanceFolders(self._jobs.folder(job.key), [i.name for i in in_order(job)])
        return logs.read(folders, query, over)

    def chaos(self, job: Job, what: str, instance: str) -> None:
        if instance not in job.instances:
            names = ", ".join(job.instances) or "none"
            raise NotFound(f"{job.spec.name} has no instance {instance!r}; there are {names}")
        chaos.rehearse(self._jobs.folder(job.key).instance(instance), instance, what)

    # --- what is there ----------------------------------------------------------------------

    async def open(self, cluster: Cluster, tell: Tell, wake: Wake) -> None:
        self._tell = self._instances.tell = tell
        self._instances.wake = wake
        self._cluster = cluster
        tasks = []
        for key, running in (await asyncio.to_thread(self._list, cluster)).items():
            if (job := cluster.jobs.get(key)) is None:
                self.remove(key, cluster)
                continue
            for name, attempt in running.items():
                self._instances.expect(job, name, attempt)
                work = partial(self._instances.find, job, name, attempt)
                tasks.append(self._errands.do(key, _lane(name), work))
        if tasks:
            await asyncio.wait(tasks, timeout=INSTANCES_FOUND)

    def _list(self, cluster: Cluster) -> dict[str, dict[str, int]]:
        """Every job that has a folder, and what may run of it."""
        found = self._jobs.keys()
        jobs = {key: cluster.jobs.get(key) for key in found}
        return {key: self._instances.list(job) if job else {} for key, job in jobs.items()}

    def observed(self, job: Job) -> Observed:
        return Observed(
            now=time.time(),
            instances=self._instances.of(job),
            fetching="code" if self._errands.busy(job.key, _code_lane(job)) else "",
            hosts=self._hosts.get(job.key),
        )

    # --- orders -----------------------------------------------------------------------------

    def carry_out(self, order: commands.Order, cluster: Cluster) -> None:
        self._cluster = cluster
        do = self._errands.do
        if (job := cluster.jobs.get(order.key)) is None:
            return  # it is gone
        match order:
            case commands.StartInstance(key, name, attempt):
                self._instances.expect(job, name, attempt)
                do(key, _lane(name), lambda: self._instances.start(job, order, cluster))
            case commands.StopInstance(key, name):
                self._instances.expect_end(job, order)
                do(key, _lane(name), lambda: self._instances.stop(job, order))
            case commands.FetchCode(key):
                do(key, _code_lane(job), lambda: self._fetch(job))
            case commands.WriteHosts(key, hosts):
                self._hosts[key] = hosts
                do(key, "hosts", lambda: self._write_hosts(job, hosts))

    def remove(self, key: str, cluster: Cluster) -> None:
        self._cluster = cluster
        self._hosts.pop(key, None)
        self._instances.forget(key)
        self._errands.cancel(key, lambda lane: not lane.startswith(_lane("")))
        self._errands.do_last(key, lambda: self._remove(key))

    async def _fetch(self, job: Job) -> None:
        try:
            folder = await self._jobs.make(job)
            environ = code.environment_of(job.spec, self._environ)
            commit = await code.fetch(code.source_of(job.spec, job.commit), folder.path, environ)
            await self._jobs.link(job, lambda: self._cluster)
        except (MidflightError, OSError) as error:
            self._tell(events.CodeNotFetched(time.time(), job.key, str(error)))
        except Exception as error:
            self._tell(events.CodeNotFetched(time.time(), job.key, f"a bug: {error!r}"))
            raise
        else:
            self._tell(events.CodeFetched(time.time(), job.key, commit))

    async def _write_hosts(self, job: Job, hosts: Mapping[str, int]) -> None:
        try:
            folder = await self._jobs.make(job)
            await asyncio.to_thread(folder.write_hosts, hosts)
        except OSError as error:  # a full disk, say; instances will not start either
            log.error("the hosts of %s could not be written: %s", job.key, error)
            await asyncio.sleep(HOSTS_AGAIN)
            self._hosts.pop(job.key, None)
            self._instances.wake(job.key)

    async def _remove(self, key: str) -> None:
        try:
            await self._jobs.remove(key, self._cluster)
        except OSError as error:
            log.error("the folder of %s could not be removed: %s", key, error)


def _lane(instance: str) -> str:
    return f"instance/{instance}"


def _code_lane(job: Job) -> str:
    """A new job of the same name does not take the end of the former one's for its own."""
    return f"code/{job.uid}"
