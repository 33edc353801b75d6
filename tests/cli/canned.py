"""Views as the server gives them, for the fake one: small, true to `protocol/views.py`."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from midflight.protocol.views import EventView, InstanceView, JobView, NodeView, OperationView


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def instance(name: str, **more: Any) -> InstanceView:
    role = "launcher" if name.endswith("launcher") else "worker"
    view = {
        "name": name,
        "role": role,
        "status": "Running",
        "reason": "",
        "age": 13.0,
        "chief": role == "launcher",
        "requestGPUs": 0 if role == "launcher" else 1,
        "devices": [] if role == "launcher" else [0],
        "node": "node-1",
        "nodeIP": "127.0.1.1",
        "pid": 4711,
        "restarts": 0,
        "exitCode": None,
        "createTime": ago(13),
        "startTime": ago(12),
        "endTime": None,
    }
    return cast(InstanceView, view | more)


def operation(**more: Any) -> OperationView:
    view = {
        "id": "demo-1599557124",
        "kind": "scaleout",
        "count": 1,
        "partial": False,
        "progress": "asked",
        "message": "",
        "workers": ["demo-worker-3"],
        "from": 3,
        "to": 4,
        "timeout": 60.0,
        "createTime": ago(65),
        "endTime": None,
        "changes": 1,
    }
    return cast(OperationView, view | more)


def job(name: str = "demo", **more: Any) -> JobView:
    view = {
        "uid": f"uid-of-{name}",
        "name": name,
        "namespace": "default",
        "type": "etjob",
        "trainer": "ETJOB",
        "status": "RUNNING",
        "reason": "",
        "priority": "N/A",
        "createTime": ago(150),
        "startTime": ago(140),
        "endTime": None,
        "duration": 140.0,
        "workers": 2,
        "minWorkers": 1,
        "maxWorkers": 9,
        "requestGPUs": 2,
        "allocatedGPUs": 2,
        "chiefName": f"{name}-launcher",
        "node": "127.0.1.1",
        "commit": "",
        "folder": f"/folder/of/{name}",
        "labels": {},
        "instances": [instance(f"{name}-{part}") for part in ("launcher", "worker-0", "worker-1")],
        "operations": [],
        "spec": {"working_dir": "", "env": {}, "environment": {}},
    }
    return cast(JobView, view | more)


def node(name: str, **more: Any) -> NodeView:
    view = {
        "name": name,
        "address": f"127.0.1.{name[-1]}",
        "role": "<none>",
        "status": "Ready",
        "gpus": 4,
        "allocatedGPUs": 0,
        "labels": {},
        "virtual": True,
        "instances": [],
    }
    return cast(NodeView, view | more)


def event(**more: Any) -> EventView:
    view = {
        "time": ago(61),
        "source": "instance/demo-worker-0",
        "kind": "Normal",
        "reason": "Started",
        "message": "runs as process 4711",
        "namespace": "default",
        "job": "demo",
    }
    return cast(EventView, view | more)
