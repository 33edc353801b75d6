"""The server's API, one typed method per verb, over its unix socket.

Nothing but the standard library, loaded when it is used: the command line starts with this.
"""

import http.client
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from midflight.console import become, user_shell
from midflight.deadlines import SERVER_ANSWER
from midflight.errors import (
    Exists,
    JobFailed,
    MidflightError,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
    UsageError,
)
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

ERRORS: dict[str, type[MidflightError]] = {
    "usage": UsageError,
    "conflict": Exists,
    "not-found": NotFound,
    "refused": Refused,
    "unavailable": Unreachable,
    "timeout": TimedOut,
}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Client:
    """The `ClusterApi` of this machine; what its methods promise is said there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- the server -------------------------------------------------------------------------

    def status(self) -> ServerView:
        return self._ask("GET", "/status")

    def stop(self) -> None:
        self._ask("POST", "/stop")

    def nodes(self) -> list[NodeView]:
        return self._ask("GET", "/nodes")

    def simulate_nodes(self, count: int, gpus: int) -> list[NodeView]:
        return self._ask("POST", "/nodes", body={"count": count, "gpus": gpus})

    def node_action(self, node: str, action: str) -> NodeView:
        return self._ask("POST", f"/nodes/{quote(node, safe='')}/{action}")

    def gpus(self, node: str) -> list[GpuView]:
        return self._ask("GET", f"/nodes/{quote(node, safe='')}/gpus")

    # --- jobs -------------------------------------------------------------------------------

    def submit(self, spec: Mapping[str, Any], created: Callable[[str], None] = ignore) -> JobView:
        return self._ask("POST", "/jobs", body=spec)

    def jobs(self, namespace: str, kind: str = "") -> list[JobSummary]:
        query = {"namespace": namespace, "type": kind}
        return self._ask("GET", "/jobs", query)

    def job(self, namespace: str, name: str) -> JobView:
        return self._ask("GET", _job(namespace, name))

    def delete(self, namespace: str, name: str) -> None:
        self._ask("DELETE", _job(namespace, name))

    def wait(self, namespace: str, name: str, until: str, timeout: float) -> JobView | None:
        query = {"until": until, "timeout": f"{timeout:g}"}
        path = f"{_job(namespace, name)}/wait"
        return self._ask("GET", path, query, timeout=timeout + SERVER_ANSWER)

    def scale(self, namespace: str, name: str, wish: Mapping[str, Any]) -> OperationView:
        return self._ask("POST", f"{_job(namespace, name)}/scale", body=wish)

    def operation(
        self, namespace: str, name: str, operation: str, after: int = 0, timeout: float = 0.0
    ) -> OperationView:
        path = f"{_job(namespace, name)}/operations/{quote(operation, safe='')}"
        query = {"after": str(after), "timeout": f"{timeout:g}"}
        return self._ask("GET", path, query, timeout=timeout + SERVER_ANSWER)

    def events(self, namespace: str, name: str = "") -> list[EventView]:
        if name:
            return self._ask("GET", f"{_job(namespace, name)}/events")
        return self._ask("GET", "/events", {"namespace": namespace})

    def training(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self._ask("GET", f"{_job(namespace, name)}/training")

    def chaos(self, namespace: str, name: str, what: str, instance: str) -> None:
        body = {"what": what, "instance": instance}
        self._ask("POST", f"{_job(namespace, name)}/chaos", body=body)

    def prune(self, namespace: str, since: float) -> list[PrunedView]:
        body = {"namespace": namespace, "since": since}
        return self._ask("POST", "/prune", body=body)

    def logs(self, namespace: str, name: str, query: Mapping[str, str]) -> Iterator[bytes]:
        connection = _UnixConnection(self.path, SERVER_ANSWER)
        try:
            answer = self._send(connection, "GET", f"{_job(namespace, name)}/logs", query, None)
            if connection.sock is not None:  # None: the answer has taken it over, and ends with it
                connection.sock.settimeout(None)  # a log may say nothing for hours
            while piece := answer.read1(1 << 16):
                yield piece
        finally:
            connection.close()

    def attach(self, job: JobView, instance: str, container: str, command: Sequence[str]) -> int:
        """Replaces this process: in the job's working folder, with the job's variables."""
        working = str(job["spec"].get("working_dir", ""))
        folder = working if working and Path(working).is_dir() else job["folder"]
        try:
            os.chdir(folder)
        except OSError as error:
            raise JobFailed(f"cannot enter {folder}: {error.strerror}") from None
        become(command or [user_shell(os.environ)], variables(job, instance, os.environ))

    # --- asking -----------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        timeout: float = SERVER_ANSWER,
    ) -> Any:  # the view that the route promises
        connection = _UnixConnection(self.path, timeout)
        try:
            return json.loads(self._send(connection, method, path, query, body).read() or b"null")
        except (http.client.HTTPException, ConnectionError) as error:
            raise Unreachable(f"the server on {self.path} went away: {error}") from None
        except TimeoutError:
            raise Unreachable(
                f"the server does not answer on {self.path}; "
                "see `midflight status`, and its log beside the socket"
            ) from None
        finally:
            connection.close()

    def _send(
        self,
        connection: _UnixConnection,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: object,
    ) -> http.client.HTTPResponse:
        target = f"/api/v1{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, target, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
        except TimeoutError:
            raise
        except http.client.RemoteDisconnected:
            raise Unreachable(
                f"the server on {self.path} went away before it answered; what was asked of it may "
                "have been accepted: see `midflight list`, which starts it again"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no server answers on {self.path}: {error}") from None
        if answer.status >= 400:
            raise _error(answer.read())
        return answer


def _error(body: bytes) -> MidflightError:
    try:
        found = json.loads(body)
        kind, text = str(found["kind"]), str(found["error"])
    except (ValueError, KeyError, TypeError):
        return JobFailed(f"the server answered with something other than JSON: {body[:80]!r}")
    return ERRORS.get(kind, JobFailed)(text)


def _job(namespace: str, name: str) -> str:
    return f"/jobs/{quote(namespace, safe='')}/{quote(name, safe='')}"


def variables(job: JobView, instance: str, own: Mapping[str, str]) -> dict[str, str]:
    """As the job's own processes have them, as far as they can be told from outside."""
    spec = job["spec"]
    found = {**own, **spec.get("environment", {}), **spec.get("env", {})}
    path = found.get("PATH", os.defpath)
    nodes = {each["name"]: each["node"] for each in job["instances"]}
    return {
        **found,
        "PATH": f"{job['folder']}/bin{os.pathsep}{path}",
        "MIDFLIGHT_JOB": job["name"],
        "MIDFLIGHT_NAMESPACE": job["namespace"],
        "MIDFLIGHT_INSTANCE": instance,
        "MIDFLIGHT_NODE": nodes.get(instance, ""),
        "MIDFLIGHT_JOB_DIR": job["folder"],
        "MIDFLIGHT_HOSTFILE": f"{job['folder']}/edl/hostfile",
    }
