"""The ConfigMaps and Secrets that pods refer to: read when asked, followed while shown.

Each object is watched once, however many volumes show it, and no longer than one does.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kubernetes.plane.api import ApiError, Json
from tests.kubernetes.plane.async_api import AsyncApi

Key = tuple[str, str, str]  # plural, namespace, name
Changed = Callable[[], None]


@dataclass
class _Followed:
    callbacks: list[Changed] = field(default_factory=list)
    latest: Json | None = None
    known: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Sources:
    def __init__(self, api: AsyncApi) -> None:
        self.api = api
        self._followed: dict[Key, _Followed] = {}

    async def read(self, key: Key) -> Json | None:
        """None where there is none. What is followed is known already."""
        followed = self._followed.get(key)
        if followed is not None and followed.known.is_set():
            return followed.latest
        plural, namespace, name = key
        try:
            return await self.api.persist("GET", f"/api/v1/namespaces/{namespace}/{plural}/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def follow(self, key: Key, changed: Changed) -> Callable[[], None]:
        """Calls `changed` at each change; returns what ends that."""
        followed = self._followed.setdefault(key, _Followed())
        followed.callbacks.append(changed)
        if followed.task is None:
            followed.task = asyncio.create_task(self._watch(key, followed))

        def stop() -> None:
            followed.callbacks.remove(changed)
            if not followed.callbacks and followed.task is not None:
                followed.task.cancel()
                del self._followed[key]

        return stop

    async def _watch(self, key: Key, followed: _Followed) -> None:
        plural, namespace, name = key
        path = f"/api/v1/namespaces/{namespace}/{plural}"
        async for event, thing in self.api.watch(path, fieldSelector=f"metadata.name={name}"):
            if event == "LISTED":
                latest = thing["items"][0] if thing["items"] else None
            else:
                latest = None if event == "DELETED" else thing
            known = followed.known.is_set()
            if known and _version(latest) == _version(followed.latest):
                continue
            followed.latest = latest
            followed.known.set()
            for changed in list(followed.callbacks):
                changed()


def _version(thing: Json | None) -> str | None:
    return thing["metadata"]["resourceVersion"] if thing else None
