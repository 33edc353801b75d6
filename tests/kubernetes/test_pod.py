"""What a pod's status means, in one line each."""

from dataclasses import replace
from typing import Any

from midflight.controller.commands import Record
from midflight.kubernetes.operator.event_recorder import LONGEST, with_last_words
from midflight.kubernetes.operator.observed import sighting
from midflight.kubernetes.resources.pod import read_pod


def made(status: dict[str, Any], **meta: Any) -> dict[str, Any]:
    labels = {"midflight.dev/job": "demo", "midflight.dev/role": "worker"}
    usual = {
        "name": "demo-worker-0",
        "namespace": "default",
        "uid": "u",
        "labels": {**labels, "midflight.dev/attempt": "3"},
        "ownerReferences": [{"uid": "job-uid", "controller": True}],
    }
    return {"metadata": {**usual, **meta}, "spec": {"nodeName": "n"}, "status": status}


def ended(code: int, **more: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, **more}}
    return {"phase": "Failed", "containerStatuses": [{"name": "et", "state": state}]}


def test_who_it_is_comes_from_its_labels_and_its_owner():
    pod = read_pod(made({"phase": "Running", "podIP": "10.0.0.1"}))
    assert (pod.job, pod.role, pod.attempt, pod.owner) == ("demo", "worker", 3, "job-uid")
    assert (pod.node, pod.ip, pod.over, pod.ends_at) == ("n", "10.0.0.1", False, None)


def test_why_it_waits_is_what_the_scheduler_says():
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    assert read_pod(made({"conditions": [condition]})).waits_for == "0/3 nodes are available"


def test_an_image_that_cannot_be_pulled_is_named_with_what_to_do():
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}
    status = {"phase": "Pending", "containerStatuses": [{"image": "missing/x", "state": state}]}
    said = read_pod(made(status)).waits_for
    assert "missing/x cannot be pulled" in said
    assert "--image-pull-secret" in said


def test_being_created_is_no_reason_to_be_told():
    state = {"waiting": {"reason": "ContainerCreating"}}
    assert (
        read_pod(made({"phase": "Pending", "containerStatuses": [{"state": state}]})).waits_for
        == ""
    )


def test_a_signal_is_a_negative_code():
    assert read_pod(made(ended(137))).code == -9
    assert read_pod(made(ended(143))).code == -15
    assert read_pod(made(ended(3))).code == 3
    assert read_pod(made(ended(255))).code == 255


def without_code(code: int, message: str) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "message": message}}
    waits = {"name": "et", "state": {"waiting": {"reason": "PodInitializing"}}}
    fetches = {"name": "midflight-code", "state": ended}
    return {"phase": "Failed", "initContainerStatuses": [fetches], "containerStatuses": [waits]}


def test_one_whose_code_could_not_be_fetched_never_began():
    """Its end was taken for that of its program."""
    seen = sighting(read_pod(made(without_code(128, "fatal: no route to host\n"))))
    assert (seen.code, seen.unusable) == (None, False)
    assert seen.reason == "its code could not be fetched: fatal: no route to host"


def test_one_whose_code_is_nowhere_is_not_tried_again():
    seen = sighting(read_pod(made(without_code(66, "there is no commit c0ffee\n"))))
    assert seen.unusable
    assert "there is no commit c0ffee" in seen.reason


def test_one_that_was_told_to_end_has_not_come_to_its_end():
    going = {"deletionTimestamp": "2026-01-02T03:04:35Z", "deletionGracePeriodSeconds": 30}
    assert read_pod(made(ended(0, finishedAt="2026-01-02T03:04:06Z"), **going)).told
    assert read_pod(made(ended(0, finishedAt="2026-01-02T03:04:05Z"), **going)).told
    assert not read_pod(made(ended(0, finishedAt="2026-01-02T03:04:04Z"), **going)).told
    assert not read_pod(made(ended(0, finishedAt="2026-01-02T03:04:06Z"))).told


def test_too_much_memory_is_said():
    pod = read_pod(made(ended(137, reason="OOMKilled")))
    assert pod.code == -9
    assert "OOMKilled" in pod.end


def test_an_evicted_pod_was_taken_away():
    pod = read_pod(made({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}))
    assert pod.taken
    assert pod.end == "Evicted: low on memory"


TRACEBACK = "Traceback (most recent call last):\n  ...\nRuntimeError: no data\n"
WHY = "ended with code 3: RuntimeError: no data"


def test_why_a_program_failed_is_the_last_line_of_its_log():
    pod = read_pod(made(ended(3, message=TRACEBACK)))
    assert (pod.code, sighting(pod).reason) == (3, WHY)
    assert sighting(read_pod(made(ended(137, message="x" * 999)))).reason == (
        f"was killed by SIGKILL: {'x' * 160}"
    )
    assert sighting(read_pod(made(ended(3)))).reason == ""
    over = read_pod(made(ended(137, reason="OOMKilled", message=TRACEBACK)))
    assert sighting(over).reason == over.end


def test_the_end_of_its_log_is_in_the_event_about_a_pod_that_failed():
    pods = {"demo-worker-0": read_pod(made(ended(3, message=TRACEBACK)))}
    record = Record("default/demo", "instance/demo-worker-0", "Warning", "Failed", WHY)
    assert with_last_words(record, pods).message == f"{WHY}\n{TRACEBACK.strip()}"
    assert with_last_words(record, {}) == record
    restarting = replace(record, reason="Restarting")
    assert with_last_words(restarting, pods) == restarting
    long = {"demo-worker-0": read_pod(made(ended(3, message="a\n" * 3000 + "the end")))}
    said = with_last_words(record, long).message
    assert said.startswith(WHY) and said.endswith("the end") and len(said) == LONGEST


def test_an_init_container_that_failed_is_why_the_pod_did():
    init = {"name": "init-code", "state": {"terminated": {"exitCode": 7, "message": "no host"}}}
    main = {"name": "et", "state": {"waiting": {"reason": "PodInitializing"}}}
    status = {"phase": "Failed", "initContainerStatuses": [init], "containerStatuses": [main]}
    pod = read_pod(made(status))
    assert (pod.code, pod.message) == (7, "no host")


def test_a_pod_that_is_being_deleted_has_until_then():
    pod = read_pod(made({"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:30Z"))
    assert pod.ends_at == 1767225630.0


def test_why_somebody_has_it_deleted_is_what_the_cluster_says():
    said = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    assert read_pod(made({"phase": "Running", "conditions": [said]})).disruption == said["reason"]
    assert read_pod(made({"phase": "Running", "conditions": []})).disruption == ""
    denied = {**said, "status": "False"}
    assert read_pod(made({"phase": "Running", "conditions": [denied]})).disruption == ""
