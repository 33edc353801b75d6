"""What other programs say, as targets: members, scanners, browsers, etcd, API servers, and files.

Those of Kubernetes come as the API server hands them on, with the types of its schema; whoever may
write there chooses everything else.
"""

import asyncio
import contextlib
import functools
import socket
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from midflight.cli.verbs.events import requests_in
from midflight.compat.kungfu.cluster import loads
from midflight.compat.kungfu.config_store import ConfigServer, ConfigStore, _Handler
from midflight.compat.torchelastic import probe
from midflight.errors import MidflightError
from midflight.kubeconfig import Settings
from midflight.kubernetes.api import errors
from midflight.kubernetes.api.kubeconfig import for_lightkube
from midflight.kubernetes.api.kubeconfig import read as read_kubeconfig
from midflight.kubernetes.resources import status
from midflight.kubernetes.resources.pod import node_answers, read_pod
from midflight.kubernetes.resources.reduction import reduce
from midflight.kubernetes.verbs.requests import of_object
from midflight.monitoring.page_server import Answer, PageServer
from midflight.protocol.audit import AUDIT
from midflight.protocol.wire import SyncWire
from midflight.store.etcd import EtcdStore
from midflight.store.etcd_address import parse_etcd_url
from tests.fuzz.objects import JOB, META, mapping

TENSORS = Path(__file__).with_name("t.safetensors").read_bytes()  # what the good manifest is about
MOST = 1 << 13  # bytes of HTTP: the answers have to fit into the buffer of a socket
SETTINGS = Settings("https://here:6443", "here", "the test")


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


# --- programs of a job ----------------------------------------------------------------------------


def horovod_frames(data: bytes) -> None:
    """Of another member, whose handshake is done."""
    try:
        from midflight.compat.horovod.engine.requests import Asked, Told
        from midflight.compat.horovod.engine.talk import Line
    except ImportError:  # no torch
        return
    for kind in (Asked, Told):
        here, there = socket.socketpair()
        with here, there, contextlib.suppress(MidflightError):
            there.sendall(data[: 1 << 16])
            there.shutdown(socket.SHUT_WR)
            line = Line(SyncWire(here), kind)
            while True:
                line.receive()


def horovod_objects(data: bytes) -> None:
    try:
        import torch
    except ImportError:
        return
    from midflight.compat.horovod.engine.objects import from_bytes

    with contextlib.suppress(MidflightError):
        from_bytes(torch.tensor(list(data), dtype=torch.uint8))


def kungfu_cluster(data: bytes) -> None:
    with contextlib.suppress(MidflightError):
        assert loads(loads(data).dumps()) == loads(data)


class _Store(ConfigServer):
    """Without a port."""

    def __init__(self) -> None:
        self.store, self.endpoint, self.token = ConfigStore(), "/config", None

    def stop(self) -> None: ...

    def know(self, request: Any) -> None: ...


def kungfu_requests(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(data[:MOST])
        there.shutdown(socket.SHUT_WR)
        _Handler(here, ("127.0.0.1", 1), _Store())
        here.shutdown(socket.SHUT_WR)
        said = there.recv(1 << 18)
        assert b" 500 " not in said.split(b"\r\n")[0]


def first_word(data: bytes) -> None:
    """Of whoever answers where a torchrun may be."""

    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        await probe._first_word(reader, cast(asyncio.StreamWriter, None), 10.0)

    _loop().run_until_complete(read())


def checkpoint_manifest(data: bytes) -> None:
    """Whoever writes one can give it the checksum that it should have."""
    try:
        from midflight.runtime.state import checkpoint_folder
    except ImportError:  # no torch
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "000001-step-1.json"
        (Path(folder) / "t.safetensors").write_bytes(TENSORS)
        for text in (data, b'{"crc32":%d,"checkpoint":%b}\n' % (zlib.crc32(data), data)):
            path.write_bytes(text)
            with contextlib.suppress(MidflightError):
                checkpoint_folder.read(path)


# --- a cluster ------------------------------------------------------------------------------------


def health_request(data: bytes) -> None:
    async def metrics() -> Answer:
        return Answer("200 OK", "")

    for token in (b"", b"t"):
        server = PageServer({"/metrics": metrics}, token)
        answer = _loop().run_until_complete(server.page(data))
        assert answer.encode().startswith(b"HTTP/1.1 ")


_ENDED = {"exitCode": 1, "reason": "Error", "message": "m", "finishedAt": "2026-01-01T00:00:00Z"}
_CONTAINER = {
    "name": "a",
    "image": "i",
    "state": {"waiting": {"reason": "r", "message": "m"}, "terminated": _ENDED},
    "lastState": {"terminated": _ENDED},
}
_CONDITION = {"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}
_POD = {
    "metadata": {
        "labels": {"midflight.dev/job": "j", "midflight.dev/attempt": "1"},
        "annotations": {"midflight.dev/template": "t"},
        "ownerReferences": [{"uid": "u", "controller": True}],
    },
    "spec": {"nodeName": "n"},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "m",
        "podIP": "10.0.0.1",
        "hostIP": "10.0.0.2",
        "conditions": [_CONDITION],
        "containerStatuses": [_CONTAINER],
        "initContainerStatuses": [_CONTAINER],
    },
}


def as_schema(value: Any, like: Any) -> Any:
    """What is left of a value where the schema has the types of `like`: as API servers prune."""
    if isinstance(like, dict) and isinstance(value, dict):
        known = {key: as_schema(value[key], each) for key, each in like.items() if key in value}
        return {key: each for key, each in known.items() if each is not None}
    if isinstance(like, list) and isinstance(value, list):
        found = [as_schema(each, like[0]) for each in value]
        return [each for each in found if each is not None]
    return value if type(value) is type(like) else None


def pod_object(data: bytes) -> None:
    obj = as_schema(mapping(data), _POD)
    read_pod({**obj, "metadata": {**(obj.get("metadata") or {}), **META}})
    node_answers(obj)


def written_status(data: bytes) -> None:
    """Over a status that somebody else has made up."""
    before = mapping(data)
    status.refused_status("no", before, 1.0)
    status.conditions(JOB, before.get("conditions"), 1.0)
    saved = status.Saved(JOB)
    with contextlib.suppress(MidflightError):
        saved = status.read({"metadata": META, "status": before}, JOB.spec)
    status.write(saved, before, 1.0)


def kept_object(data: bytes) -> None:
    for kind in ("TrainingJob", "PyTorchJob", "ScaleOut", "Pod"):
        obj = {**mapping(data), "kind": kind}
        for key in ("status", "spec"):  # the schema has objects there
            if not isinstance(obj.get(key, {}), dict):
                del obj[key]
        reduce({**obj, "metadata": META})


def requests_of_object(data: bytes) -> None:
    changed = {"manager": "m", "time": "t", "subresource": "status", "operation": "Update"}
    obj = as_schema(mapping(data), {"metadata": {"managedFields": [changed]}})
    meta = {**(obj.get("metadata") or {}), **META}
    for kind in ("TrainingJob", "ScaleOut"):
        list(of_object({"kind": kind, "metadata": meta}))


def api_answer(data: bytes) -> None:
    for code in (400, 401, 403, 404, 409, 410, 422, 500, 504):
        error = errors.from_answer(code, data, "list pods", SETTINGS)
        assert str(error) and "\n" not in str(error)


def kubeconfig(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(MidflightError, ValueError):
            for_lightkube(read_kubeconfig([file.name]))


# --- stores and files -----------------------------------------------------------------------------


class _Gateway:
    """An etcd that answers everything with the same."""

    address, patience = parse_etcd_url("etcd://here"), 0.01

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def call(self, path: str, body: object) -> dict[str, Any]:
        return self._answer

    def close(self) -> None: ...


def etcd_answer(data: bytes) -> None:
    store = EtcdStore(_Gateway.address, patience=_Gateway.patience)
    store._gateway = store._writes._gateway = cast(Any, _Gateway(mapping(data)))
    works: tuple[Callable[[], object], ...] = (
        lambda: store.get("a"),
        lambda: store.put("a", b"", expect=0),
        lambda: store.put("a", b"", expect=None),
        lambda: store.watch("a"),
        lambda: store.lease(1.0),
    )
    for work in works:
        with contextlib.suppress(MidflightError):
            work()


def audit_lines(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / AUDIT).write_bytes(data)
        for said in requests_in(Path(folder)):
            assert said["about"] is not None and said["at"] is not None


TARGETS = (
    horovod_frames,
    horovod_objects,
    kungfu_cluster,
    kungfu_requests,
    first_word,
    checkpoint_manifest,
    health_request,
    pod_object,
    written_status,
    kept_object,
    requests_of_object,
    api_answer,
    kubeconfig,
    etcd_answer,
    audit_lines,
)
