"""Taking over an object that somebody else changes meanwhile."""

from typing import Any

import pytest

from midflight.kubernetes.api.errors import Changed
from midflight.kubernetes.install import apply, manifests

Object = dict[str, Any]


def deployment() -> Object:
    objects = manifests.objects("midflight-system", "midflight:1", 2, "")
    return next(one for one in objects if one["kind"] == "Deployment")


class Contested:
    """A connection on whose objects somebody else has a say: `changes` more times."""

    def __init__(self, changes: int) -> None:
        self.changes = changes
        self.version = 1

    def find_object(self, manifest: Object) -> Object:
        return {**manifest, "metadata": {"name": "theirs", "resourceVersion": str(self.version)}}

    def replace(self, whole: Object, manager: str) -> None:
        self.version += self.changes > 0
        self.changes -= self.changes > 0
        if whole["metadata"]["resourceVersion"] != str(self.version):
            raise Changed("the object has been modified")

    def apply(self, manifest: Object, manager: str) -> Object:
        return self.find_object(manifest)

    def patch(self, place: Any, body: Object, what: str) -> Object:
        return {"metadata": {"resourceVersion": "9"}}


def test_an_object_that_somebody_else_changes_meanwhile_is_taken_over_all_the_same() -> None:
    ours: Any = deployment()
    taken = apply.apply_one(Contested(3), ours, take_over=True)  # type: ignore[arg-type]
    assert taken.how == "configured"


def test_an_object_that_is_changed_again_and_again_is_given_up() -> None:
    ours: Any = deployment()
    with pytest.raises(Changed):
        apply.apply_one(Contested(1000), ours, take_over=True)  # type: ignore[arg-type]
