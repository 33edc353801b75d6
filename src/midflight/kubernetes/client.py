"""What the verbs ask of a cluster: the same questions as of the server on one machine.

`KubernetesClient` is a `ClusterApi`, as `midflight.client.Client` is, so that a verb need not know
where its job is. There is no server in between: everything goes to the
API server, and the operator does what the objects there say. What only some verbs need is loaded by
these alone, so that `list` is quick.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from midflight.errors import Refused
from midflight.kubernetes.api.connection import Connection, Object
from midflight.kubernetes.names import JOB_KINDS
from midflight.protocol.cluster_api import ignore
from midflight.protocol.views import (
    EventView,
    GpuView,
    JobSummary,
    JobView,
    NodeView,
    OperationView,
    PrunedView,
    ServerView,
)

if TYPE_CHECKING:
    from midflight.kubernetes.api.user import User


class KubernetesClient:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @cached_property
    def _user(self) -> str:
        from midflight.kubernetes.api import user

        return user.name(self.connection)

    # --- the cluster ------------------------------------------------------------------------

    def status(self) -> ServerView:
        from midflight.kubernetes.verbs import nodes

        return nodes.status(self.connection)

    def stop(self) -> None:
        raise Refused("a cluster is not stopped from here: `midflight delete` ends jobs")

    def nodes(self) -> list[NodeView]:
        from midflight.kubernetes.verbs import nodes

        return nodes.nodes(self.connection)

    def simulate_nodes(self, count: int, gpus: int) -> list[NodeView]:
        raise Refused("a cluster has the nodes it has: `midflight top node` shows them")

    def node_action(self, node: str, action: str) -> NodeView:
        from midflight.kubernetes.verbs import nodes

        return nodes.act(self.connection, node, action)

    def gpus(self, node: str) -> list[GpuView]:
        """Which pod has which device, and how busy it is, only the node itself knows."""
        return []

    def claims(self, namespace: str) -> list[Object]:
        from midflight.kubernetes.verbs import nodes

        return nodes.claims(self.connection, namespace)

    def whoami(self) -> "User":
        from midflight.kubernetes.api import user

        return user.whoami(self.connection)

    # --- jobs -------------------------------------------------------------------------------

    def submit(self, spec: Mapping[str, Any], created: Callable[[str], None] = ignore) -> JobView:
        """What is created is told, in kubectl's words."""
        from midflight.controller.spec import Spec
        from midflight.kubernetes.verbs import jobs, lookup, submit
        from midflight.protocol import codec

        wanted = codec.decode(Spec, dict(spec))
        obj = submit.create(self.connection, wanted, self._user, created)
        found = lookup.read(obj, JOB_KINDS[wanted.kind.value])
        return jobs.view(self.connection, found)

    def jobs(self, namespace: str, kind: str = "") -> list[JobSummary]:
        from midflight.kubernetes.verbs import job_list

        return job_list.jobs(self.connection, namespace, [kind] if kind else list(JOB_KINDS))

    def job(self, namespace: str, name: str) -> JobView:
        from midflight.kubernetes.verbs import jobs, lookup

        return jobs.view(self.connection, lookup.find(self.connection, namespace, name))

    def delete(self, namespace: str, name: str) -> None:
        from midflight.kubernetes.verbs import jobs, lookup

        found = lookup.find(self.connection, namespace, name)
        jobs.delete(self.connection, found.kind, namespace, name, found.uid, self._user)

    def wait(self, namespace: str, name: str, until: str, timeout: float) -> JobView | None:
        """The job once it is running or finished, None once it is gone; or else TimedOut."""
        from midflight.kubernetes.verbs import jobs, wait

        found = wait.until(self.connection, namespace, name, until, timeout)
        return None if found is None else jobs.view(self.connection, found)

    def scale(self, namespace: str, name: str, wish: Mapping[str, Any]) -> OperationView:
        from midflight.controller.views import operation_view
        from midflight.kubernetes.verbs import scale

        return operation_view(scale.scale(self.connection, namespace, name, wish, self._user))

    def operation(
        self, namespace: str, name: str, operation: str, after: int = 0, timeout: float = 0.0
    ) -> OperationView:
        """As soon as it has changed more than `after` times, or as it is after `timeout`."""
        from midflight.controller.views import operation_view
        from midflight.kubernetes.verbs import wait

        found = wait.operation(self.connection, namespace, name, operation, after, timeout)
        return operation_view(found)

    def events(self, namespace: str, name: str = "") -> list[EventView]:
        from midflight.kubernetes.verbs import events, lookup

        if name:
            lookup.find(self.connection, namespace, name)
        return events.events(self.connection.items("Event", namespace), name)

    def requests(self, namespace: str, name: str = "") -> list[dict[str, Any]]:
        """Who asked for what. The job may be gone."""
        from midflight.kubernetes.verbs import requests

        return requests.requests(self.connection, namespace, name)

    def training(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Its coordinator listens to the job's own pods only, so nobody here can ask it."""
        from midflight.kubernetes.verbs import lookup

        lookup.find(self.connection, namespace, name)
        return None

    def chaos(self, namespace: str, name: str, what: str, instance: str) -> None:
        from midflight.kubernetes.verbs import jobs

        if what != "kill":
            raise Refused(
                f"`chaos {what}` needs the machine itself: on a cluster there is only kill"
            )
        jobs.kill(self.connection, namespace, name, instance, self._user)

    def prune(self, namespace: str, since: float) -> list[PrunedView]:
        from midflight.kubernetes.verbs import jobs

        return jobs.prune(self.connection, namespace, since, self._user)

    def logs(self, namespace: str, name: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Pieces of text as they come; with `follow` in the query, until the job is over."""
        from midflight.kubernetes.verbs import jobs

        return jobs.logs(self.connection, namespace, name, query)

    def attach(self, job: JobView, instance: str, container: str, command: Sequence[str]) -> int:
        """The exit code of the command, run in that pod with this terminal."""
        from midflight.kubernetes.verbs import jobs

        return jobs.attach(self.connection, job["namespace"], instance, container, command)
