"""The instances of this machine: what is known of each, and how they are started and stopped.

What is known is kept in memory, as the keepers have written it down: who comes back after a restart
finds it in their files, with the times at which things happened. Everything that changes wakes the
job. It is kept for a job's uid: what is heard late of a job that is gone never counts for the next
one of its name.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from midflight.backends.local import limits
from midflight.backends.local.folder import JobFolder
from midflight.backends.local.jobs import Jobs
from midflight.backends.local.log_file import last_line
from midflight.backends.local.plan import render
from midflight.backends.local.processes import Keepers
from midflight.backends.local.reports import (
    Ended,
    NotStarted,
    Outcome,
    Running,
    has_keeper,
    read_state,
)
from midflight.backends.place import Tell, Wake
from midflight.controller.commands import StartInstance, StopInstance
from midflight.controller.events import InstanceNoted
from midflight.controller.instance_end import described
from midflight.controller.orders import Condition, Sighting
from midflight.controller.roster import is_elastic
from midflight.controller.state import ON_NODE, Cluster, Instance, Job, Role
from midflight.errors import MidflightError

KILL_AGAIN = 5.0  # seconds to the next kill of one that does not end, beside the time it is late


@dataclass(frozen=True)
class Unknown:
    """Nobody has made this attempt, as far as its folder says."""

    attempt: int


class Instances:
    def __init__(self, keepers: Keepers, jobs: Jobs, environ: Mapping[str, str]) -> None:
        self.tell: Tell = lambda event: None
        self.wake: Wake = lambda key: None
        self._keepers = keepers
        self._jobs = jobs
        self._environ = environ
        self._seen: dict[str, dict[str, Sighting]] = {}  # by uid of the job, and name
        self._uids: dict[str, str] = {}  # of the jobs that are there, by key

    def of(self, job: Job) -> dict[str, Sighting]:
        """Those that are up, and the ends that the job does not know yet."""
        return {
            name: seen
            for name, seen in self._seen.get(job.uid, {}).items()
            if seen.condition is not Condition.OVER or _awaits(job, name, seen.attempt)
        }

    def forget(self, key: str) -> None:
        self._seen.pop(self._uids.pop(key, ""), None)

    # --- orders -----------------------------------------------------------------------------

    def expect(self, job: Job, name: str, attempt: int) -> None:
        """It is being started, or looked for: nobody has to start it."""
        self._uids[job.key] = job.uid
        self._seen.setdefault(job.uid, {})[name] = Sighting(attempt, Condition.WAITING)

    async def start(self, job: Job, order: StartInstance, cluster: Cluster) -> None:
        name, attempt = order.instance, order.attempt
        outcome: Outcome
        try:
            folder = await self._jobs.make(job)
            plan = await asyncio.to_thread(
                self._plan, job, job.instances[name], cluster, folder, attempt
            )
            outcome = await self._keepers.start(folder.instance(name), plan)
        except (MidflightError, OSError) as error:
            outcome = NotStarted(attempt, _words(error))
        except Exception as error:
            self._note(job, name, NotStarted(attempt, f"a bug: {error!r}"))
            raise
        self._note(job, name, outcome)

    def expect_end(self, job: Job, order: StopInstance) -> None:
        """It is being stopped: nobody has to tell it again."""
        if (seen := self._seen.get(job.uid, {}).get(order.instance)) is not None:
            by = time.time() + (KILL_AGAIN if order.force else order.grace)
            told = replace(seen, ends_at=by, can_hurry=order.grace > 0)
            self._seen[job.uid][order.instance] = told

    async def stop(self, job: Job, order: StopInstance) -> None:
        folder = self._jobs.folder(job.key).instance(order.instance)
        outcome = await self._keepers.adopt(folder, order.attempt)
        if isinstance(outcome, Running):
            await self._keepers.stop(folder, order.grace)  # its end is told when it has come
        else:
            self._note(job, order.instance, outcome or Unknown(order.attempt))

    def list(self, job: Job) -> dict[str, int]:
        """Attempts of those that should run, or do run, and were started before a restart."""
        found = {}
        for path in self._jobs.folder(job.key).instances() if self._jobs.is_of(job) else ():
            instance = job.instances.get(path.name)
            expected = instance is not None and instance.stage in ON_NODE
            if expected or has_keeper(path):
                state = read_state(path)
                known = instance.attempt if instance is not None else 0
                found[path.name] = state.attempt if state is not None else known
        return found

    async def find(self, job: Job, name: str, attempt: int) -> None:
        """One that is on the list."""
        folder = self._jobs.folder(job.key).instance(name)
        self._note(job, name, await self._keepers.adopt(folder, attempt) or Unknown(attempt))

    def has_ended(self, folder: str, outcome: Ended) -> None:
        """For the keepers, which know folders only: JOBS/NAMESPACE/NAME/instances/INSTANCE.

        They tell of what is known to run; else it belongs to an earlier job of that name.
        """
        parts = Path(folder).parts
        key, name = "/".join(parts[-4:-2]), parts[-1]
        uid = self._uids.get(key, "")
        seen = self._seen.get(uid, {}).get(name)
        if seen is not None and seen.condition is Condition.RUNNING:
            self._see(key, uid, name, self._over(key, name, outcome))

    # --- what is known ----------------------------------------------------------------------

    def _note(self, job: Job, name: str, outcome: Outcome | Unknown) -> None:
        seen = self._seen.get(job.uid, {}).get(name)
        if seen is None:
            return  # the job is gone
        match outcome:
            case Unknown(attempt):
                if seen.attempt == attempt:
                    del self._seen[job.uid][name]
                    self.wake(job.key)
            case NotStarted(attempt, reason):
                over = Sighting(attempt, Condition.OVER, reason=reason)
                self._see(job.key, job.uid, name, over)
            case Running(attempt, pid, started_at):
                running = Sighting(
                    attempt,
                    Condition.RUNNING,
                    pid=pid,
                    started_at=started_at,
                    ends_at=seen.ends_at,
                    can_hurry=seen.can_hurry,
                )
                self._see(job.key, job.uid, name, running)
            case Ended():
                self._see(job.key, job.uid, name, self._over(job.key, name, outcome))

    def _see(self, key: str, uid: str, name: str, seen: Sighting) -> None:
        """What is said of an attempt is no news once there is a later one."""
        if self._seen[uid][name].attempt <= seen.attempt:
            self._seen[uid][name] = seen
            self.wake(key)

    def _over(self, key: str, name: str, outcome: Ended) -> Sighting:
        reason = outcome.reason
        if not reason and outcome.code > 0:
            last = last_line(self._jobs.folder(key).instance(name) / "log")
            reason = f"{described(outcome.code)}: {last}" if last else ""
        return Sighting(
            outcome.attempt,
            Condition.OVER,
            pid=outcome.pid,
            reason=reason,
            code=outcome.code,
            started_at=outcome.started_at or None,
            ended_at=outcome.ended_at or None,
        )

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
            self.tell(InstanceNoted(time.time(), job.key, instance.name, note))
        return found


def _awaits(job: Job, name: str, attempt: int) -> bool:
    """Whether the job does not know yet how this attempt has ended."""
    instance = job.instances.get(name)
    return instance is not None and instance.stage in ON_NODE and instance.attempt == attempt


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)
