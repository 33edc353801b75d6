"""What the routes share: the loop, and the state as the API shows it.

The routes themselves are in `server_routes.py`, `job_routes.py` and `polling_routes.py`; each is
one small function. `application.py` puts them together.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request

from midflight.backends.local.interface import Machine
from midflight.backends.local.journal import Journal
from midflight.backends.loop import Loop
from midflight.backends.place import Noted
from midflight.controller import views
from midflight.controller.state import Cluster, Job, Node, Operation
from midflight.errors import NotFound
from midflight.protocol.views import EventView, JobSummary, JobView, NodeView
from midflight.server.bodies import nearest
from midflight.server.waiters import Waiters


@dataclass
class Api:
    loop: Loop
    machine: Machine
    journal: Journal
    waiters: Waiters
    home: Path
    started_at: float
    stop: Callable[[], None] = lambda: None  # ends the server
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def cluster(self) -> Cluster:
        return self.loop.cluster

    # --- finding ----------------------------------------------------------------------------

    def job(self, request: Request) -> Job:
        return find_job(self.cluster, key_of(request))

    def node(self, name: str) -> Node:
        return find_node(self.cluster, name)

    # --- showing ----------------------------------------------------------------------------

    def summary(self, job: Job) -> JobSummary:
        return views.summary(self.cluster, job, self.loop.clock(), self.machine.folder(job))

    def view(self, job: Job) -> JobView:
        return views.view(self.cluster, job, self.loop.clock(), self.machine.folder(job))

    def node_view(self, node: Node) -> NodeView:
        return views.node_view(self.cluster, node)

    def event_view(self, noted: Noted) -> EventView:
        return views.event_view(noted.record, noted.at)


def key_of(request: Request) -> str:
    return f"{request.path_params['namespace']}/{request.path_params['name']}"


def find_job(cluster: Cluster, key: str) -> Job:
    if (job := cluster.jobs.get(key)) is None:
        namespace, _, name = key.partition("/")
        others = [o.spec.name for o in cluster.jobs.values() if o.spec.namespace == namespace]
        raise NotFound(
            f"no job is named {name} in namespace {namespace}{nearest(name, others)};"
            " `midflight list` shows those there are"
        )
    return job


def find_node(cluster: Cluster, name: str) -> Node:
    if (node := cluster.nodes.get(name)) is None:
        known = ", ".join(cluster.nodes) or "none"
        raise NotFound(f"no node is named {name}; there are: {known}")
    return node


def find_operation(job: Job, identity: str) -> Operation:
    for operation in job.operations:
        if operation.id == identity:
            return operation
    raise NotFound(
        f"{job.spec.name} has no scale operation {identity}; `midflight get` shows those it has"
    )
