"""The API server, as far as the operator uses it: plain dictionaries, and errors by what they mean.

A thin layer over lightkube. Every write asks `permit` first, which raises once this operator no
longer leads: what has been decided too late is not done.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from midflight.errors import Exists, MidflightError, NotFound, Unreachable
from midflight.kubernetes import names

Object = dict[str, Any]
EVERYWHERE = "*"
SECONDS = 20.0  # for an answer
AT_ONCE = 24  # requests, of all jobs together; more would only wait elsewhere, and time out there
WATCH_SECONDS = 240  # after which a watch is begun anew
_CHUNK = 500

_NAMESPACED = {
    "Pod": ("", "v1", "pods"),
    "Service": ("", "v1", "services"),
    "ConfigMap": ("", "v1", "configmaps"),
    "Secret": ("", "v1", "secrets"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
    "Event": ("", "v1", "events"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
    "Role": ("rbac.authorization.k8s.io", "v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    names.PODGROUP: (names.SCHEDULING_GROUP, names.SCHEDULING_VERSION, "podgroups"),
    names.TRAININGJOB: (names.GROUP, names.VERSION, "trainingjobs"),
    names.SCALEOUT: (names.GROUP, names.VERSION, "scaleouts"),
    names.SCALEIN: (names.GROUP, names.VERSION, "scaleins"),
    names.PYTORCHJOB: (names.PYTORCH_GROUP, names.PYTORCH_VERSION, "pytorchjobs"),
}


_NODE = create_global_resource("", "v1", "Node", "nodes")


@functools.cache
def _resource(group: str, version: str, kind: str, plural: str) -> Any:
    """The library keeps a list of its own, and takes each once."""
    return create_namespaced_resource(group, version, kind, plural)


_DEFINITION = create_global_resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)


class Changed(MidflightError):
    """Somebody else has changed the object since it was read."""


class UnknownKind(Unreachable):
    """A bare 404, about no object: no such kind is served, or not yet by a server that starts."""


class Rejected(MidflightError):
    """The API server will not do it: no right, a full quota, an object that is not valid."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def for_good(self) -> bool:
        """The object itself is wrong, so that trying again is of no use."""
        return self.code == 422


class AsyncConnection:
    def __init__(self, client: AsyncClient, permit: Callable[[], None] = lambda: None) -> None:
        self._client: Any = client  # its overloads know models only, and these are dictionaries
        self.permit = permit
        self.requests = 0
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        await self._client.close()

    # --- reading ----------------------------------------------------------------------------

    async def get(self, kind: str, namespace: str, name: str) -> Object:
        return dict(await self._do(self._client.get(self._kind(kind), name, namespace=namespace)))

    async def definition(self, name: str) -> Object | None:
        """A CustomResourceDefinition, None if there is none."""
        try:
            return dict(await self._do(self._client.get(_DEFINITION, name)))
        except NotFound:
            return None

    async def list(
        self, kind: str, namespace: str, labels: dict[str, str] | None = None
    ) -> tuple[list[Object], str]:
        """All of them, and the version of the list, to watch from."""
        found: list[Object] = []
        resource = self._kind(kind)
        self.requests += 1
        try:
            answer = self._client.list(resource, **_where(kind, namespace, labels, _CHUNK))
            async for each in answer:
                found.append({**each, "apiVersion": _api_of(kind), "kind": kind})
            return found, answer.resourceVersion
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise explained(error) from None

    async def watch(
        self, kind: str, namespace: str, version: str, labels: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[str, Object]]:
        """Changes after `version`; ends with an error, and never by itself."""
        self.requests += 1
        try:
            more = {"resource_version": version, "server_timeout": WATCH_SECONDS}
            where = _where(kind, namespace, labels)
            async for what, each in self._client.watch(self._kind(kind), **where, **more):
                yield what, dict(each)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise explained(error) from None

    # --- writing ----------------------------------------------------------------------------

    async def create(self, obj: Object) -> Object:
        self.permit()
        resource = self._kind(obj["kind"], obj["apiVersion"])
        namespace = obj["metadata"]["namespace"]
        made = self._client.create(resource.from_dict(obj), namespace=namespace)
        return dict(await self._do(made))

    async def patch(self, kind: str, namespace: str, name: str, change: Object) -> Object:
        """A merge patch: what is None goes."""
        self.permit()
        resource = self._kind(kind)
        answer = self._client.patch(
            resource, name, change, namespace=namespace, patch_type=PatchType.MERGE
        )
        return dict(await self._do(answer))

    async def replace(self, obj: Object) -> Object:
        self.permit()
        return await self._replace(self._kind(obj["kind"]), obj)

    async def replace_status(self, obj: Object) -> Object:
        """Changed if somebody else has changed the object meanwhile."""
        self.permit()
        return await self._replace(self._kind(obj["kind"]).Status, obj)

    async def _replace(self, resource: Any, obj: Object) -> Object:
        meta = obj["metadata"]
        answer = self._client.replace(
            resource.from_dict(obj), name=meta["name"], namespace=meta["namespace"]
        )
        return dict(await self._do(answer))

    async def delete(self, kind: str, namespace: str, name: str, grace: int | None = None) -> None:
        """One that is not there is fine."""
        await self._delete(kind, namespace, name, grace_period=grace)

    async def delete_after_its_things(self, kind: str, namespace: str, name: str) -> None:
        """What it owns goes first; one that is being deleted otherwise goes like this from now."""
        await self._delete(kind, namespace, name, cascade=CascadeType.FOREGROUND)

    async def _delete(self, kind: str, namespace: str, name: str, **how: Any) -> None:
        self.permit()
        with contextlib.suppress(NotFound):
            await self._do(self._client.delete(self._kind(kind), name, namespace=namespace, **how))

    # --- both -------------------------------------------------------------------------------

    def _kind(self, kind: str, api: str = "") -> Any:
        if kind == "PodDisruptionBudget":  # of two versions, as old as the cluster
            group, _, version = api.partition("/")
            return _resource(group, version, kind, "poddisruptionbudgets")
        if kind == "Node":
            return _NODE
        group, version, plural = _NAMESPACED[kind]
        return _resource(group, version, kind, plural)

    async def _do(self, request: Any) -> Any:
        try:
            async with self._gate:
                self.requests += 1
                return await request
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise explained(error) from None


def explained(error: Exception) -> MidflightError:
    if not isinstance(error, ApiError):
        if isinstance(error, httpx2.HTTPStatusError) and error.response.status_code == 404:
            return UnknownKind(f"the API server knows no {error.request.url.path}")
        return Unreachable(f"the API server does not answer: {str(error) or type(error).__name__}")
    status = error.status
    code, text = int(status.code or 0), str(status.message or status.reason or error)
    if code == 404:
        return NotFound(text)
    if code == 409:
        return Exists(text) if status.reason == "AlreadyExists" else Changed(text)
    if code in (429, 500, 502, 503, 504):
        return Unreachable(f"the API server cannot do it now ({code}): {text}")
    return Rejected(code, text)


def _where(
    kind: str, namespace: str, labels: dict[str, str] | None, chunk: int | None = None
) -> dict[str, Any]:
    """Nodes are in no namespace."""
    found: dict[str, Any] = {"labels": labels}
    if kind != "Node":
        found["namespace"] = namespace
    if chunk is not None:
        found["chunk_size"] = chunk
    return found


def _api_of(kind: str) -> str:
    if kind == "Node":
        return "v1"
    group, version, _ = _NAMESPACED[kind]
    return f"{group}/{version}" if group else version
