"""The folders of all jobs: made before anything of a job starts, removed with what is left in it.

A folder knows which job it was made for. If a job is found in the folder of an earlier one of the
same name, the server was killed while that was being removed, and the removal is done first.
Links to fetched code are made and taken away one at a time, so that two jobs never do it at once.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from midflight.atomic_file import write
from midflight.backends.local import code, code_link
from midflight.backends.local.code_link import Neighbour
from midflight.backends.local.folder import JobFolder
from midflight.backends.local.plan import Site
from midflight.backends.local.processes import Keepers
from midflight.backends.local.reports import has_keeper
from midflight.backoff import LOOK
from midflight.controller.state import Cluster, Job
from midflight.deadlines import REST_KILLED

_UID = "uid"


class Jobs:
    def __init__(self, home: Path, python: str, keepers: Keepers) -> None:
        self._home = home
        self._python = python
        self._keepers = keepers
        self._made: dict[str, asyncio.Task[None]] = {}  # by uid
        self._linking = asyncio.Lock()

    @property
    def path(self) -> Path:
        return self._home / "jobs"

    def folder(self, key: str) -> JobFolder:
        return JobFolder.of(self._home, key)

    def site(self, folder: JobFolder, environ: Mapping[str, str], port: int) -> Site:
        return Site(self._python, str(self._home), str(folder.path), environ, port)

    def keys(self) -> list[str]:
        """The keys of all jobs that have a folder."""
        return [f"{path.parent.name}/{path.name}" for path in sorted(self.path.glob("*/*/"))]

    def is_of(self, job: Job) -> bool:
        """Whether the folder is this job's, and not that of an earlier one of its name."""
        return _uid_of(self.folder(job.key)) == job.uid

    async def make(self, job: Job) -> JobFolder:
        """Its folder, with everything in it. OSError if that cannot be."""
        task = self._made.get(job.uid)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._made[job.uid] = asyncio.create_task(self._make(job))
        await asyncio.shield(task)
        return self.folder(job.key)

    async def _make(self, job: Job) -> None:
        folder = self.folder(job.key)
        if folder.path.exists() and _uid_of(folder) != job.uid:
            await self.remove(job.key, Cluster())
        await asyncio.to_thread(folder.create, self._python)
        await asyncio.to_thread(write, folder.path / _UID, job.uid.encode(), 0o600)

    async def remove(self, key: str, cluster: Cluster) -> None:
        """With its links, and with what still runs in it, which is nothing if all went well."""
        folder = self.folder(key)
        uid = _uid_of(folder)
        await self._kill_all(folder)
        async with self._linking:
            heirs = await asyncio.to_thread(self._heirs, folder, cluster)
            await asyncio.to_thread(code_link.unlink, folder.path, heirs)
        await asyncio.to_thread(folder.remove)
        self._made.pop(uid, None)

    async def _kill_all(self, folder: JobFolder) -> None:
        left = [path for path in folder.instances() if has_keeper(path)]
        for path in left:
            await self._keepers.stop(path, 0.0)
        deadline = time.monotonic() + REST_KILLED
        while left and time.monotonic() < deadline:
            await asyncio.sleep(LOOK)
            left = [path for path in left if has_keeper(path)]

    # --- code -------------------------------------------------------------------------------

    async def link(self, job: Job, cluster: Callable[[], Cluster]) -> None:
        """Show the fetched code in the job's working directory; JobFailed if that cannot be.

        `cluster` tells of the others, as they are once it is this one's turn.
        """
        folder = self.folder(job.key)
        place = Path(job.spec.working_dir or folder.work)

        def neighbour(key: str) -> Neighbour:
            other = cluster().jobs.get(key)
            if other is None or other.finished:
                return Neighbour.OVER
            same = self._same_code(folder, self.folder(key))
            return Neighbour.SAME if same else Neighbour.BUSY

        async with self._linking:
            await asyncio.to_thread(code_link.link, folder.path, place, self.path, neighbour)

    def _heirs(self, folder: JobFolder, cluster: Cluster) -> list[Path]:
        """Folders of unfinished jobs that use the link of this one."""
        place = code_link.working_dir_of(folder.path)
        if place is None:
            return []
        others = [self.folder(job.key) for job in cluster.jobs.values() if not job.finished]
        return [
            other.path
            for other in others
            if other.path != folder.path
            and code_link.working_dir_of(other.path) == place
            and self._same_code(folder, other)
        ]

    def _same_code(self, one: JobFolder, other: JobFolder) -> bool:
        """The same commit of the same source; what rsync brought has no such name."""
        found = code.fetched(one.path)
        return found is not None and found[1] != "" and found == code.fetched(other.path)


def _uid_of(folder: JobFolder) -> str:
    try:
        return (folder.path / _UID).read_text()
    except OSError:
        return ""
