"""The local backend: carries the controller's commands out with processes on this machine.

It decides nothing. Each command becomes a piece of work in a lane of its job, and what comes of it
is told as an event; whatever goes wrong is told as well. Instances are found again by what their
keepers have written, so that this object can be thrown away and made anew at any time.
"""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path

from midflight.backends import training, words
from midflight.backends.interface import LogQuery, Tell
from midflight.backends.local import chaos, code, devices, logs
from midflight.backends.local.errands import Errands
from midflight.backends.local.folder import InstanceFolders
from midflight.backends.local.instances import Instances, TellNote
from midflight.backends.local.jobs import Jobs
from midflight.backends.local.processes import Keepers
from midflight.backends.local.reports import has_keeper
from midflight.controller import commands, events
from midflight.controller.roster import in_order
from midflight.controller.state import ON_NODE, Cluster, Job, Node
from midflight.errors import MidflightError, NotFound
from midflight.protocol.messages import Status
from midflight.protocol.views import GpuView
from midflight.run.dial import call_async
from midflight.rundir import RunDir

ADOPT_SECONDS = 5.0  # that a start waits for instances to be found; the rest is told later

log = logging.getLogger("midflight.backends")


def no_note(key: str, instance: str, line: str) -> None:
    """Where nobody wants to know which limits are not kept."""


class LocalBackend:
    def __init__(
        self, home: Path, environ: Mapping[str, str] | None = None, tell_note: TellNote = no_note
    ) -> None:
        """`tell_note` is given a job's key, an instance and a line about it, from any thread."""
        self._environ = dict(os.environ if environ is None else environ)
        self._tell: Tell = lambda event: None
        self._keepers = Keepers(lambda folder, end: self._instances.has_ended(folder, end))
        self._jobs = Jobs(home.absolute(), sys.executable, self._keepers)
        self._instances = Instances(self._keepers, self._jobs, self._environ, tell_note)
        self._errands = Errands()
        self._cluster = Cluster()  # as of the last command

    def nodes(self) -> tuple[Node, ...]:
        """This machine, with its GPUs or, where it has none, CPU slots that serve as such."""
        name, gpus = socket.gethostname(), devices.gpu_count()
        labels = {"kubernetes.io/hostname": name}
        slots = gpus or devices.cpu_slots()
        return (Node(name, "127.0.0.1", slots, labels, virtual=not gpus),)

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
            for index, each in devices.gpu_metrics().items()
        ]

    async def open(self, tell: Tell) -> None:
        self._tell = self._instances.tell = tell

    async def close(self) -> None:
        await self._errands.close()
        self._keepers.close()

    def folder(self, job: Job) -> str:
        return str(self._jobs.folder(job.key).path)

    async def training(self, job: Job) -> Status | None:
        return await training.status(partial(call_async, self._run(job)))

    def logs(self, job: Job, query: LogQuery, over: Callable[[], bool]) -> AsyncIterator[bytes]:
        folders = InstanceFolders(self._jobs.folder(job.key), [i.name for i in in_order(job)])
        return logs.read(folders, query, over)

    def chaos(self, job: Job, what: str, instance: str) -> None:
        if instance not in job.instances:
            names = ", ".join(job.instances) or "none"
            raise NotFound(f"{job.spec.name} has no instance {instance!r}; there are {names}")
        chaos.rehearse(self._jobs.folder(job.key).instance(instance), instance, what)

    # --- after a start ----------------------------------------------------------------------

    async def adopt(self, cluster: Cluster) -> None:
        self._cluster = cluster
        tasks = [
            self._errands.do(job.key, _lane(i.name), partial(self._instances.find, job.key, i))
            for job in cluster.jobs.values()
            for i in job.instances.values()
            if i.stage in ON_NODE and not self._errands.busy(job.key, _lane(i.name))
        ]
        for key in await asyncio.to_thread(self._jobs.keys):
            if (job := cluster.jobs.get(key)) is not None:
                tasks += self._end_unknown(job)
            elif key not in self._cluster.jobs:  # one that was submitted meanwhile is another
                self._errands.do_last(key, partial(self._remove, key))
        if tasks:
            await asyncio.wait(tasks, timeout=ADOPT_SECONDS)

    def _end_unknown(self, job: Job) -> "list[asyncio.Task[None]]":
        """Instances that run, but that the journal knows to have ended, or does not know."""
        known = {name for name, i in job.instances.items() if i.stage in ON_NODE}
        paths = self._jobs.folder(job.key).instances()
        return [
            self._errands.do(job.key, _lane(path.name), partial(self._kill, path))
            for path in paths
            if path.name not in known and has_keeper(path)
        ]

    async def _kill(self, folder: Path) -> None:
        await self._keepers.stop(folder, 0.0)

    # --- commands ---------------------------------------------------------------------------

    def carry_out(self, command: commands.Command, cluster: Cluster) -> None:
        self._cluster = cluster
        try:
            self._hand_out(command, cluster)
        except Exception:  # the server must go on, whatever this is
            log.exception("a bug: %s was not carried out", type(command).__name__)

    def _hand_out(self, command: commands.Command, cluster: Cluster) -> None:
        do, busy = self._errands.do, self._errands.busy
        match command:
            case commands.StartInstance(key, name):
                do(key, _lane(name), lambda: self._instances.start(command, cluster))
            case commands.StopInstance(key, name):
                do(key, _lane(name), lambda: self._instances.stop(command))
            case commands.FetchCode(key):
                if not busy(key, "code"):
                    do(key, "code", lambda: self._fetch(cluster.jobs[key]))
            case commands.AskResize(key, operation):
                if not busy(key, lane := f"resize/{operation}"):
                    do(key, lane, lambda: self._resize(command, cluster.jobs[key]))
            case commands.WriteHosts(key):
                do(key, "hosts", lambda: self._write_hosts(command, cluster))
            case commands.RemoveJob(key):
                self._errands.cancel(key, lambda lane: not lane.startswith(_lane("")))
                self._errands.do_last(key, lambda: self._remove(key))
            case commands.Record():
                pass  # the journal's business

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

    async def _resize(self, command: commands.AskResize, job: Job) -> None:
        key, operation = command.key, command.operation

        def progress(line: str) -> None:
            self._tell(events.ResizeProgressed(time.time(), key, operation, line))

        run = self._run(job)
        expected = words.uses_midflight(job.spec.command, job.spec.run_in) or run.has_spec
        wish = training.Wish(command.members, command.leaving, command.request, command.again)
        try:
            ok, detail = await training.resize(
                partial(call_async, run), wish, command.timeout, progress, expected
            )
        except Exception as error:
            bug = f"a bug: {error!r}"
            self._tell(events.ResizeEnded(time.time(), key, operation, False, bug))
            raise
        self._tell(events.ResizeEnded(time.time(), key, operation, ok, detail))

    async def _write_hosts(self, command: commands.WriteHosts, cluster: Cluster) -> None:
        if (job := cluster.jobs.get(command.key)) is None:
            return
        try:
            folder = await self._jobs.make(job)
            await asyncio.to_thread(folder.write_hosts, command.hosts)
        except OSError as error:  # a full disk, say; instances will not start either
            log.error("the hosts of %s could not be written: %s", command.key, error)

    async def _remove(self, key: str) -> None:
        try:
            await self._jobs.remove(key, self._cluster)
        except OSError as error:
            log.error("the folder of %s could not be removed: %s", key, error)

    def _run(self, job: Job) -> RunDir:
        return RunDir(self._jobs.folder(job.key).run)


def _lane(instance: str) -> str:
    return f"instance/{instance}"
