"""Ways to scale a job that all mean the same: objects, `kubectl scale`, and the spec itself.

Whoever looks at one of them sees what the others have done.
"""

from typing import Any

import pytest

from tests.kubernetes.plane.api import Json
from tests.kubernetes.running.jobs import JOB, Jobs, condition
from tests.kubernetes.running.observations import uids
from tests.kubernetes.running.operators import Operators
from tests.metric_text import value

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def replicas(job: Json) -> int:
    return int(job["spec"]["etReplicaSpecs"]["worker"]["replicas"])


def wait_replicas(jobs: Jobs, name: str, count: int) -> None:
    """So many run, and the spec says so too."""
    jobs.wait_workers(name, count)
    jobs.wait_for(name, lambda job: replicas(job) == count)


def scaled(jobs: Jobs, kind: str, name: str) -> str:
    ended = jobs.wait_scaled(kind, name)
    word = ended["status"]["phase"]
    return f"{word}: {condition(ended, word)['message']}"


def test_objects_and_kubectl_scale_and_the_spec_say_the_same(
    jobs: Jobs, kubectl: Any, operators: Operators
):
    jobs.idle("idle", workers=1)
    jobs.wait_workers("idle", 1)
    place = ("-n", jobs.namespace)
    assert kubectl(*place, "scale", "trainingjob/idle", "--replicas=3").returncode == 0
    wait_replicas(jobs, "idle", 3)
    jobs.scale_in("idle", "less", pods=["idle-worker-1"])
    wait_replicas(jobs, "idle", 2)
    assert set(uids(jobs)) == {"idle-launcher", "idle-worker-0", "idle-worker-2"}
    jobs.scale_out("idle", "more", 1)
    wait_replicas(jobs, "idle", 3)
    shown = kubectl(*place, "get", "trainingjob", "idle", "--no-headers").stdout.split()
    assert shown[:4] == ["idle", "Running", "3", "3"]
    shown = kubectl(*place, "get", "scalein,scaleout", "--no-headers").stdout
    assert shown.count("ScaleSucceeded") == 2
    told, job = operators.metrics(), {"namespace": jobs.namespace, "job": "idle"}
    for kind, count in (("scaleout", 2), ("scalein", 1)):
        labels = {**job, "kind": kind, "outcome": "succeeded"}
        assert value(told, "midflight_scale_duration_seconds_count", **labels) == count
    assert value(told, "midflight_reconcile_duration_seconds_count", **job) > 3


def test_a_scaleout_without_room_is_taken_back_or_keeps_what_came(jobs: Jobs):
    jobs.idle("large", workers=2, most=8, gpus=4)  # a whole node each, and there are three
    jobs.wait_workers("large", 2)
    before = uids(jobs)
    jobs.scale_out("large", "whole", 2, timeout=2)
    assert "not all instances started in time" in scaled(jobs, "ScaleOut", "whole")
    wait_replicas(jobs, "large", 2)
    assert uids(jobs) == before
    jobs.scale_out("large", "part", 2, timeout=2, partial=True)
    assert scaled(jobs, "ScaleOut", "part").startswith("ScaleSucceeded: 1 of 2")
    wait_replicas(jobs, "large", 3)


def test_a_size_is_reached_whatever_became_of_the_request_before_it(jobs: Jobs):
    jobs.idle("large", workers=3, most=8, gpus=4)
    jobs.wait_workers("large", 3)
    jobs.scale_out("large", "vain", 1, timeout=2)
    jobs.wait_phase("large", "Scaling")
    jobs.set_replicas("large", 2)
    assert scaled(jobs, "ScaleOut", "vain").startswith("ScaleFailed")
    wait_replicas(jobs, "large", 2)


def test_objects_of_both_kinds_may_have_one_name_and_be_there_before_their_job(jobs: Jobs):
    jobs.scale_out("idle", "same", 1)
    jobs.idle("idle", workers=2)
    assert scaled(jobs, "ScaleOut", "same").startswith("ScaleSucceeded")
    jobs.scale_in("idle", "same", count=2)
    assert scaled(jobs, "ScaleIn", "same").startswith("ScaleSucceeded")
    wait_replicas(jobs, "idle", 1)
    jobs.cluster.delete(JOB, jobs.namespace, "idle")
    for kind in ("ScaleOut", "ScaleIn"):
        jobs.cluster.wait_gone(kind, jobs.namespace, "same")
