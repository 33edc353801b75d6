"""The operator's connection to the API server: lightkube with plain dictionaries and our errors.

Every write asks `permit` first, which raises once this operator no longer leads: what was decided
too late is not done.
"""

import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import httpx2
from lightkube import AsyncClient
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import CascadeType, PatchType

from midflight.deadlines import WATCH
from midflight.errors import NotFound
from midflight.kubernetes.api.errors import from_lightkube
from midflight.kubernetes.api.fair_gate import FairGate
from midflight.kubernetes.api.paths import APIS, is_namespaced, plural

Object = dict[str, Any]
T = TypeVar("T")
SECONDS = 20.0  # for an answer
AT_ONCE = 24  # requests, of all jobs together; more would only wait elsewhere, and time out there
SHARE = 16  # of those, of the jobs of one namespace
# Objects in an answer to a list. Each may have 1.5 MB, and an answer is in memory as a whole:
# with pages of 500 a few hundred large objects of one tenant were more than the operator has.
_PAGE = 10
_PAGE_OF_PODS = 50  # there are many, and the API server knows their fields


def _resource(kind: str, api: str = "") -> Any:
    """lightkube's class for a kind; `api` where a cluster may have one of several versions."""
    return _generic_resource(kind, api or APIS.get(kind, "v1"))


@functools.cache  # lightkube registers each class, and takes it once
def _generic_resource(kind: str, api: str) -> Any:
    group, _, version = api.rpartition("/")
    create = create_namespaced_resource if is_namespaced(kind) else create_global_resource
    return create(group, version, kind, plural(kind))


class AsyncConnection:
    def __init__(self, client: AsyncClient, permit: Callable[[], None] = lambda: None) -> None:
        self._client: Any = client  # its overloads know models only, and these are dictionaries
        self.permit = permit
        self.requests = 0
        self._gate = FairGate(AT_ONCE, SHARE)

    async def close(self) -> None:
        await self._client.close()

    # --- reading ----------------------------------------------------------------------------

    async def get(self, kind: str, namespace: str, name: str, api: str = "") -> Object:
        where = {"namespace": namespace} if is_namespaced(kind) else {}
        request = self._client.get(_resource(kind, api), name, **where)
        return dict(await self._do(request, namespace))

    async def find(self, kind: str, namespace: str, name: str) -> Object | None:
        try:
            return await self.get(kind, namespace, name)
        except NotFound:
            return None

    async def list(
        self,
        kind: str,
        namespace: str,
        labels: dict[str, str] | None,
        keep: Callable[[Object], T],
    ) -> tuple[list[T], str]:
        """What is kept of each, and the version of the list, to watch from.

        `keep` is given each object as it arrives, so that all of them are never there at once.
        """
        found: list[T] = []
        resource = _resource(kind)
        page = _PAGE_OF_PODS if kind == "Pod" else _PAGE
        self.requests += 1
        try:
            answer = self._client.list(resource, **_where(kind, namespace, labels, page))
            async for each in answer:
                found.append(keep({**each, "apiVersion": APIS.get(kind, "v1"), "kind": kind}))
            return found, answer.resourceVersion
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise from_lightkube(error) from None

    async def watch(
        self, kind: str, namespace: str, version: str, labels: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[str, Object]]:
        """Changes after `version`; ends with an error, and never by itself."""
        self.requests += 1
        try:
            more = {"resource_version": version, "server_timeout": WATCH}
            where = _where(kind, namespace, labels)
            async for what, each in self._client.watch(_resource(kind), **where, **more):
                yield what, dict(each)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise from_lightkube(error) from None

    async def log(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """The last lines of a container's log."""
        try:
            async with self._gate.turn(namespace):
                self.requests += 1
                answer = self._client.log(
                    pod, namespace=namespace, container=container, tail_lines=lines
                )
                return "".join([line async for line in answer])
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise from_lightkube(error) from None

    # --- writing ----------------------------------------------------------------------------

    async def create(self, obj: Object) -> Object:
        self.permit()
        resource = _resource(obj["kind"], obj["apiVersion"])
        namespace = obj["metadata"]["namespace"]
        made = self._client.create(resource.from_dict(obj), namespace=namespace)
        return dict(await self._do(made, namespace))

    async def patch(
        self, kind: str, namespace: str, name: str, change: Object, api: str = ""
    ) -> Object:
        """A merge patch: what is None goes."""
        self.permit()
        resource = _resource(kind, api)
        answer = self._client.patch(
            resource, name, change, namespace=namespace, patch_type=PatchType.MERGE
        )
        return dict(await self._do(answer, namespace))

    async def replace(self, obj: Object, status: bool = False) -> Object:
        """The object, or its status alone; Changed if somebody else has changed it meanwhile."""
        self.permit()
        resource, meta = _resource(obj["kind"]), obj["metadata"]
        made = (resource.Status if status else resource).from_dict(obj)
        answer = self._client.replace(made, name=meta["name"], namespace=meta["namespace"])
        return dict(await self._do(answer, meta["namespace"]))

    async def delete(self, kind: str, namespace: str, name: str, grace: int | None = None) -> None:
        """One that does not exist is fine."""
        await self._delete(kind, namespace, name, grace_period=grace)

    async def delete_in_foreground(self, kind: str, namespace: str, name: str) -> None:
        """Foreground deletion: its dependents go first."""
        await self._delete(kind, namespace, name, cascade=CascadeType.FOREGROUND)

    async def _delete(self, kind: str, namespace: str, name: str, **how: Any) -> None:
        self.permit()
        with contextlib.suppress(NotFound):
            request = self._client.delete(_resource(kind), name, namespace=namespace, **how)
            await self._do(request, namespace)

    # --- both -------------------------------------------------------------------------------

    async def _do(self, request: Any, namespace: str) -> Any:
        try:
            async with self._gate.turn(namespace):
                self.requests += 1
                return await request
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise from_lightkube(error) from None


def _where(
    kind: str, namespace: str, labels: dict[str, str] | None, chunk: int | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"labels": labels}
    if is_namespaced(kind):
        found["namespace"] = namespace
    if chunk is not None:
        found["chunk_size"] = chunk
    return found
