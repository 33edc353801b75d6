"""Starting, stopping and finding instances, and telling what became of them as events.

Every start is followed by InstanceStarted or InstanceNotStarted, every stop by InstanceEnded, also
if there was nothing to stop. The times in the events are those that the keepers have written down,
so that what happened while no server was there is told as it was.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from midflight.backends.interface import Tell
from midflight.backends.local import limits
from midflight.backends.local.folder import JobFolder
from midflight.backends.local.jobs import Jobs
from midflight.backends.local.log_file import last_line
from midflight.backends.local.plan import render
from midflight.backends.local.processes import Keepers
from midflight.backends.local.reports import Ended, NotStarted, Outcome, Running
from midflight.controller.commands import StartInstance, StopInstance
from midflight.controller.events import InstanceEnded, InstanceNotStarted, InstanceStarted
from midflight.controller.instance_end import described
from midflight.controller.roster import is_elastic
from midflight.controller.state import Cluster, Instance, Job, Role, Stage
from midflight.errors import MidflightError

GONE = "it is gone, and nothing is known of its end"
NEVER = "it was stopped before it was started"
TellNote = Callable[[str, str, str], None]


class Instances:
    def __init__(
        self, keepers: Keepers, jobs: Jobs, environ: Mapping[str, str], tell_note: TellNote
    ) -> None:
        self.tell: Tell = lambda event: None
        self._keepers = keepers
        self._jobs = jobs
        self._environ = environ
        self._tell_note = tell_note

    async def start(self, command: StartInstance, cluster: Cluster) -> None:
        key, name, attempt = command.key, command.instance, command.attempt
        try:
            job = cluster.jobs[key]
            folder = await self._jobs.make(job)
            plan = await asyncio.to_thread(
                self._plan, job, job.instances[name], cluster, folder, attempt
            )
            outcome = await self._keepers.start(folder.instance(name), plan)
        except (MidflightError, OSError) as error:
            outcome = NotStarted(attempt, _words(error))
        except Exception as error:
            self.tell(InstanceNotStarted(time.time(), key, name, attempt, f"a bug: {error!r}"))
            raise
        self._tell_outcome(key, name, outcome)

    async def stop(self, command: StopInstance) -> None:
        key, name, attempt = command.key, command.instance, command.attempt
        folder = self._jobs.folder(key).instance(name)
        outcome = await self._keepers.adopt(folder, attempt)
        if isinstance(outcome, Running):
            await self._keepers.stop(folder, command.grace)
            return  # its end is told when it has come
        if not isinstance(outcome, Ended):
            outcome = Ended(attempt, -signal.SIGTERM, NEVER, time.time())
        self.tell(self._ended(key, name, outcome))

    async def find(self, key: str, instance: Instance) -> None:
        """One that is on a node, as far as the journal knows."""
        folder = self._jobs.folder(key).instance(instance.name)
        outcome = await self._keepers.adopt(folder, instance.attempt)
        if outcome is None or (
            isinstance(outcome, NotStarted) and instance.stage is not Stage.STARTING
        ):
            outcome = Ended(instance.attempt, -signal.SIGKILL, GONE, time.time())
        self._tell_outcome(key, instance.name, outcome)

    def has_ended(self, folder: str, outcome: Ended) -> None:
        """For the keepers, which know folders only: JOBS/NAMESPACE/NAME/instances/INSTANCE."""
        parts = Path(folder).parts
        self.tell(self._ended("/".join(parts[-4:-2]), parts[-1], outcome))

    def _tell_outcome(self, key: str, name: str, outcome: Outcome) -> None:
        match outcome:
            case NotStarted(attempt, reason):
                self.tell(InstanceNotStarted(time.time(), key, name, attempt, reason))
            case Running(attempt, pid, started_at):
                self.tell(InstanceStarted(started_at, key, name, attempt, pid))
            case Ended():
                if outcome.started_at:  # it was too short to be seen while it ran
                    self.tell(
                        InstanceStarted(outcome.started_at, key, name, outcome.attempt, outcome.pid)
                    )
                self.tell(self._ended(key, name, outcome))

    def _ended(self, key: str, name: str, outcome: Ended) -> InstanceEnded:
        at = outcome.ended_at or time.time()
        reason = outcome.reason
        if not reason and outcome.code > 0:
            last = last_line(self._jobs.folder(key).instance(name) / "log")
            reason = f"{described(outcome.code)}: {last}" if last else ""
        return InstanceEnded(at, key, name, outcome.attempt, outcome.code, reason)

    def _plan(
        self, job: Job, instance: Instance, cluster: Cluster, folder: JobFolder, attempt: int
    ) -> dict[str, Any]:
        port = 0 if is_elastic(job.spec) else folder.port()
        site = self._jobs.site(folder, self._environ, port)
        plan = render(job, instance, cluster, site)
        mark = f"{job.uid}.{instance.name}.{attempt}"
        return {
            "argv": list(plan.argv),
            "env": plan.env,
            "cwd": plan.cwd,
            "grace": plan.grace,
            "attempt": attempt,
            "mark": mark,
            "limits": self._limits(job, instance, mark),
        }

    def _limits(self, job: Job, instance: Instance, mark: str) -> dict[str, Any]:
        """Those of the spec are for workers, and for a master, which is one."""
        if instance.role is Role.LAUNCHER:
            return limits.NO_LIMITS
        found, notes = limits.plan_limits(job.spec.cpu, job.spec.memory, mark)
        for note in notes:
            self._tell_note(job.key, instance.name, note)
        return found


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
