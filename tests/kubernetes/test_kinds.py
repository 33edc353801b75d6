"""Whose PyTorchJobs are: Kubeflow's, whose operator may still run them, or ours."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from midflight.kubernetes import names
from midflight.kubernetes.install.kubeflow import runs_pytorchjobs
from midflight.kubernetes.operator.manager import served_kinds, until_other_kinds

OURS = {"metadata": {"labels": {names.MANAGED_BY: names.MANAGER}}}
THEIRS: dict[str, Any] = {"metadata": {"labels": {}}}
BOTH = (names.TRAININGJOB, names.PYTORCHJOB)


class Definitions:
    """An API server with one answer after the other, of which the last one stays."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def find(self, kind: str, namespace: str, name: str) -> Any:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def kinds_with(*answers: Any) -> tuple[str, ...]:
    api: Any = Definitions(*answers)
    return asyncio.run(served_kinds(api))


def test_pytorchjobs_are_run_where_their_definition_is_ours() -> None:
    by_helm = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/part-of": "midflight"}
    assert kinds_with(OURS) == kinds_with({"metadata": {"labels": by_helm}}) == BOTH
    assert kinds_with(THEIRS) == kinds_with(None) == (names.TRAININGJOB,)


def test_a_definition_that_is_taken_over_is_noticed_while_the_operator_runs() -> None:
    api: Any = Definitions(THEIRS, THEIRS, OURS)
    asyncio.run(until_other_kinds(api, None, (names.TRAININGJOB,), pause=0.0))
    assert api.answers == [OURS]


@pytest.mark.parametrize(
    ("image", "args", "replicas", "runs"),
    [
        ("kubeflow/training-operator:v1-855e096", (), 1, True),
        ("registry:5000/pytorch-operator@sha256:0", (), 1, True),
        ("kubeflow/training-operator", ("--enable-scheme=pytorchjob",), 1, True),
        ("kubeflow/training-operator", ("--enable-scheme=tfjob",), 1, False),
        ("kubeflow/training-operator", (), 0, False),
        ("midflight:1", (), 2, False),
    ],
)
def test_kubeflow_s_operator_is_known_by_its_image(
    image: str, args: Sequence[str], replicas: int, runs: bool
) -> None:
    pod = {"containers": [{"name": "c", "image": image, "args": list(args)}]}
    deployment = {"spec": {"replicas": replicas, "template": {"spec": pod}}}
    assert runs_pytorchjobs(deployment) == runs
    leaving = {**deployment, "status": {"replicas": 1}}
    assert runs_pytorchjobs(leaving) == (runs or replicas == 0)
