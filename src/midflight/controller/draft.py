"""Draft: the cluster and the records of one decision while it is being made.

A decision is a pure function from outside; inside it is easier to read as a few small changes in a
row. A draft lives for one event. What did not change stays the same object, so that the server
sees by identity what it has to save.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from midflight.controller import roster
from midflight.controller.commands import Record
from midflight.controller.placement import Room
from midflight.controller.state import Cluster, Instance, Job, Node, Operation


class Draft:
    def __init__(self, cluster: Cluster, now: float) -> None:
        self.before = cluster
        self.now = now
        self.nodes = cluster.nodes
        self.jobs = dict(cluster.jobs)
        self.active = set(_active(cluster))
        self.records: list[Record] = []
        self.touched: set[str] = set()  # jobs that are to be looked at before this is over
        self.freed = False  # there may be room now for what waits
        self._changed: set[str] = set()
        self._room: Room | None = None

    # --- jobs -------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        self.jobs[job.key] = job
        self._changed.add(job.key)
        if roster.is_active(job):
            self.active.add(job.key)
        else:
            self.active.discard(job.key)

    def set_job(self, key: str, **changes: Any) -> Job:
        job = self.jobs[key]
        if any(getattr(job, name) != value for name, value in changes.items()):
            self.put_job(replace(job, **changes))
        return self.jobs[key]

    def drop_job(self, key: str) -> None:
        del self.jobs[key]
        self._changed.add(key)
        self.active.discard(key)
        self.touched.discard(key)
        self._room, self.freed = None, True

    def touch(self, keys: Iterable[str]) -> None:
        self.touched.update(keys)

    def by_age(self, keys: Iterable[str]) -> list[Job]:
        """Oldest first."""
        found = [self.jobs[key] for key in keys if key in self.jobs]
        return sorted(found, key=lambda job: (job.created_at, job.key))

    # --- instances --------------------------------------------------------------------------

    def add_instances(self, key: str, instances: Iterable[Instance]) -> None:
        """One that has the name of another that is gone goes on counting its attempts."""
        used = self.jobs[key].attempts
        new = {
            i.name: replace(i, attempt=used.get(i.name, 0), first_attempt=used.get(i.name, 0) + 1)
            for i in instances
        }
        self.set_job(key, instances={**self.jobs[key].instances, **new})

    def set_instance(self, key: str, name: str, **changes: Any) -> Instance:
        old = self.jobs[key].instances[name]
        new = replace(old, **changes)
        if new != old:
            self.set_job(key, instances={**self.jobs[key].instances, name: new})
            self._note_room(old, new)
        return new

    def drop_instance(self, key: str, name: str) -> None:
        old = self.jobs[key].instances[name]
        rest = {other: i for other, i in self.jobs[key].instances.items() if other != name}
        attempts = {**self.jobs[key].attempts, name: old.attempt}
        self.set_job(key, instances=rest, attempts=attempts)
        self._note_room(old, None)

    def _note_room(self, old: Instance, new: Instance | None) -> None:
        stays = new is not None and roster.holds(new) and new.node == old.node
        if roster.holds(old) and not stays:
            self._room, self.freed = None, True

    # --- operations -------------------------------------------------------------------------

    def set_operation(self, key: str, operation: Operation, **changes: Any) -> Operation:
        new = replace(operation, changes=operation.changes + 1, **changes)
        others = self.jobs[key].operations
        self.set_job(key, operations=tuple(new if o.id == new.id else o for o in others))
        return new

    # --- nodes ------------------------------------------------------------------------------

    def set_nodes(self, nodes: dict[str, Node]) -> None:
        if nodes != self.nodes:
            self.nodes = nodes
            self._room, self.freed = None, True

    @property
    def room(self) -> Room:
        """What is free on the nodes; whoever takes of it says so in the instance as well."""
        if self._room is None:
            jobs = [self.jobs[key] for key in self.active]
            held = [i for job in jobs for i in job.instances.values() if roster.holds(i)]
            self._room = Room(self.nodes, held)
        return self._room

    @room.setter
    def room(self, room: Room) -> None:
        self._room = room

    # --- words ------------------------------------------------------------------------------

    def record(self, key: str, source: str, reason: str, message: str) -> None:
        self.records.append(Record(key, source, "Normal", reason, message))

    def warn(self, key: str, source: str, reason: str, message: str) -> None:
        self.records.append(Record(key, source, "Warning", reason, message))

    def about_job(self, key: str) -> str:
        return f"job/{self.jobs[key].spec.name}"

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> tuple[Cluster, tuple[Record, ...]]:
        same = not self._changed and self.nodes is self.before.nodes
        if same and self.before.active is not None:
            return self.before, tuple(self.records)
        cluster = replace(
            self.before, nodes=self.nodes, jobs=self.jobs, active=frozenset(self.active)
        )
        return cluster, tuple(self.records)


def _active(cluster: Cluster) -> Iterable[str]:
    if cluster.active is not None:
        return cluster.active
    return (key for key, job in cluster.jobs.items() if roster.is_active(job))
