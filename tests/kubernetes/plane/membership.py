"""A node's place in the cluster: its Node object, the lease that it renews, and what it offers."""

import asyncio
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.kubernetes.plane.api import MERGE, STRATEGIC, ApiError, Json
from tests.kubernetes.plane.async_api import AsyncApi, Unreachable
from tests.kubernetes.plane.status import now

_BEAT = 1.0  # seconds between renewals
_LOOK = 5  # renewals between looks at what is said about this node
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Identity:
    name: str
    ip: str
    port: int  # of its HTTPS endpoint
    capacity: Mapping[str, str]
    labels: Mapping[str, str]
    boot: str  # another one each time it starts


async def register(api: AsyncApi, me: Identity) -> None:
    """Also for a node that comes back under its old name."""
    labels = {
        "kubernetes.io/hostname": me.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        **me.labels,
    }
    lease = {"holderIdentity": me.name, "leaseDurationSeconds": 4, "renewTime": _micro_now()}
    await _create(api, "/api/v1/nodes", {"metadata": {"name": me.name, "labels": labels}})
    await _tell_status(api, me)
    await _create(api, _LEASES, {"metadata": {"name": me.name}, "spec": lease})


async def keep(api: AsyncApi, me: Identity) -> None:
    """For ever: renews the lease and, where somebody believes the node to be lost, objects."""
    count = 0
    while True:
        try:
            renewal = {"spec": {"renewTime": _micro_now()}}
            await api.call("PATCH", f"{_LEASES}/{me.name}", renewal, MERGE)
            if count % _LOOK == 0 and not await _believed_ready(api, me):
                await _tell_status(api, me)
        except (Unreachable, ApiError) as error:
            print(f"heartbeat: {error}", flush=True)
        count += 1
        await asyncio.sleep(_BEAT)


async def _create(api: AsyncApi, path: str, thing: Json) -> None:
    while True:
        try:
            await api.persist("POST", path, thing)
            return
        except ApiError as error:
            if error.status == 409:  # it was here before
                return
            if error.status != 404:
                raise
            await asyncio.sleep(0.1)  # the namespace of the leases is not there yet


async def _believed_ready(api: AsyncApi, me: Identity) -> bool:
    node = await api.call("GET", f"/api/v1/nodes/{me.name}")
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


async def _tell_status(api: AsyncApi, me: Identity) -> None:
    time = now()
    truths = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False"}
    status = {
        "capacity": dict(me.capacity),
        "allocatable": dict(me.capacity),
        "addresses": [
            {"type": "InternalIP", "address": me.ip},
            {"type": "Hostname", "address": me.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": me.port}},
        "nodeInfo": _node_info(me),
        "conditions": [
            {
                "type": kind,
                "status": truth,
                "reason": "ProcessNode",
                "lastHeartbeatTime": time,
                "lastTransitionTime": time,
            }
            for kind, truth in truths.items()
        ],
    }
    await api.persist("PATCH", f"/api/v1/nodes/{me.name}/status", {"status": status}, STRATEGIC)


def _node_info(me: Identity) -> dict[str, str]:
    return {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "bootID": me.boot,
        "containerRuntimeVersion": "process://1",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.20.2-process",
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": platform.platform(),
        "systemUUID": "",
    }


def _micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
