"""What the operator keeps of objects: large ones of one tenant must not take everybody's memory."""

import asyncio
import json
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import AsyncConnection
from midflight.kubernetes.resources import status
from midflight.kubernetes.resources.job_spec import spec_of
from midflight.kubernetes.resources.reduction import reduce
from tests.kubernetes.job_objects import Json, pytorch_job, training_job
from tests.kubernetes.operator_in_memory import scale_out

LARGE = 1_400_000  # bytes: etcd takes little more


def size(obj: Any) -> int:
    return len(json.dumps(obj))


def blown_up(obj: Json, *path: str) -> Json:
    """With a template as large as the API server takes it."""
    template = obj["spec"]
    for key in path:
        template = template[key]
    template["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "x" * LARGE}]
    return obj


@pytest.mark.parametrize("role", ["launcher", "worker"])
def test_a_template_that_is_too_large_is_not_kept_and_the_job_is_refused_for_it(role: str) -> None:
    obj = blown_up(training_job(), "etReplicaSpecs", role)
    kept = reduce(obj)
    assert size(kept) < 10_000
    with pytest.raises(UsageError, match=rf"{role}.template is too large.*got 14\d{{5}}"):
        spec_of(kept)
    kept = reduce(blown_up(pytorch_job(), "pytorchReplicaSpecs", "Worker"))
    with pytest.raises(UsageError, match=r"Worker.template is too large"):
        spec_of(kept)


def test_what_can_be_used_is_kept_as_it_is() -> None:
    for obj in (training_job(), pytorch_job()):
        assert reduce(obj) == obj
        assert spec_of(reduce(obj)) == spec_of(obj)


def test_the_copy_of_an_object_that_kubectl_keeps_in_it_is_not_kept() -> None:
    obj = training_job()
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 200_000, "own": "kept"}
    obj["metadata"] |= {"annotations": notes, "managedFields": [{}]}
    kept = reduce(obj)["metadata"]
    assert kept["annotations"] == {"own": "kept"}
    assert "managedFields" not in kept


def test_of_a_scale_object_that_is_over_little_is_kept() -> None:
    shown = {"phase": "ScaleFailed", "conditions": [{"message": "x" * LARGE}]}
    kept = reduce(scale_out("team", "a", "job", shown))
    assert size(kept) < 1000
    assert status.is_over(kept)


def test_of_a_scale_object_with_a_huge_status_little_is_kept() -> None:
    obj = scale_out("team", "a", "job", {"phase": "Scaling", "addPods": ["x" * LARGE]})
    obj["spec"]["more"] = "x" * LARGE
    kept = reduce(obj)
    assert size(kept) < 1000
    assert kept["spec"]["toAdd"] == {"count": 1}


class Large(dict[str, Any]):
    """A dictionary that can be watched."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Client:
    """Lists large objects, page by page, and counts how many there are at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.chunk_size = self.most = 0
        self._alive: weakref.WeakSet[Large] = weakref.WeakSet()

    def list(self, resource: Any, **where: Any) -> "Client":
        self.chunk_size = where["chunk_size"]
        return self

    async def __aiter__(self) -> AsyncIterator[Large]:
        for number in range(self.count):
            obj = blown_up(training_job(), "etReplicaSpecs", "worker")
            obj["spec"] = Large(obj["spec"])
            self._alive.add(obj["spec"])
            self.most = max(self.most, len(self._alive))
            obj["metadata"]["name"] = f"large-{number}"
            yield Large(obj)
            del obj

    resourceVersion = "1"


def test_large_objects_are_reduced_as_they_arrive_in_small_pages() -> None:
    client: Any = Client(50)
    found, _ = asyncio.run(AsyncConnection(client).list(names.TRAININGJOB, "*", None, reduce))
    assert len(found) == 50
    assert client.most <= 2
    assert client.chunk_size * LARGE < 64 << 20
    assert size(found) < 50 * 10_000
