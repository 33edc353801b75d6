"""Events, as a kubelet records them: the story of a pod for `kubectl describe` and `get events`."""

import asyncio
import uuid

from tests.kubernetes.plane.api import ApiError, Json
from tests.kubernetes.plane.async_api import AsyncApi, Unreachable
from tests.kubernetes.plane.status import now


class Recorder:
    """Records without being waited for: an event that cannot be stored is dropped."""

    def __init__(self, api: AsyncApi, node: str) -> None:
        self._api = api
        self._node = node
        self._sending: set[asyncio.Task[None]] = set()

    def record(self, pod: Json, reason: str, message: str, warning: bool = False) -> None:
        meta, time = pod["metadata"], now()
        subject = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        }
        event = {
            "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": subject,
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "source": {"component": "kubelet", "host": self._node},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }
        task = asyncio.create_task(self._send(meta["namespace"], event))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, namespace: str, event: Json) -> None:
        try:
            await self._api.call("POST", f"/api/v1/namespaces/{namespace}/events", event)
        except (ApiError, Unreachable) as error:
            print(f"event {event['reason']} not recorded: {error}", flush=True)
