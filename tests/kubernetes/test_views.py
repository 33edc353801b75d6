"""What people see of jobs, pods, nodes and events, made of objects as the API server has them."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from midflight.controller import roster
from midflight.controller.spec import Spec
from midflight.controller.state import Instance, Job, Phase, Role, Stage
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.resources import foreign, job_spec, status, summary
from midflight.kubernetes.verbs import events, nodes, pod_status, views
from midflight.protocol.views import time_text
from tests.kubernetes import jobs
from tests.kubernetes.job_objects import pytorch_job, training_job

Json = dict[str, Any]
NOW = jobs.NOW + 100.0
MADE = "2023-11-14T22:13:20Z"  # jobs.NOW


def container(state: Json, ready: bool = False, name: str = "et") -> Json:
    return {"name": name, "ready": ready, "state": state, "image": "i"}


def pod(
    *containers: Json, phase: str = "Running", init: list[Json] | None = None, **status: Any
) -> Json:
    found: Json = {"phase": phase, "containerStatuses": list(containers), **status}
    spec: Json = {"containers": [{"name": "et"}, {"name": "sidecar"}], "nodeName": "node-1"}
    if init is not None:
        found["initContainerStatuses"] = init
        spec["initContainers"] = [{"name": each["name"]} for each in init]
    labels = {names.JOB: "demo", names.ROLE: "worker", names.INDEX: "0", names.ATTEMPT: "2"}
    meta = {"name": "demo-worker-0", "namespace": "default", "uid": "u", "labels": labels}
    return {
        "metadata": {**meta, "creationTimestamp": MADE},
        "spec": spec,
        "status": found,
    }


RUNS = {"running": {"startedAt": MADE}}
DONE = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": MADE, "finishedAt": MADE}}
FAILED = {"terminated": {"exitCode": 3, "reason": "Error"}}
OOM = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


def waits(reason: str) -> Json:
    return {"waiting": {"reason": reason}}


WORDS = {
    "Running": pod(container(RUNS, ready=True)),
    "Completed": pod(container(DONE), phase="Succeeded"),
    "Error": pod(container(FAILED), phase="Failed"),
    "OOMKilled": pod(container(OOM), phase="Failed"),
    "ContainerCreating": pod(container(waits("ContainerCreating")), phase="Pending"),
    "ErrImagePull": pod(container(waits("ErrImagePull")), phase="Pending"),
    "CrashLoopBackOff": pod(container(waits("CrashLoopBackOff"))),
    "Evicted": pod(phase="Failed", reason="Evicted", message="the node was low on memory"),
    "Pending": pod(phase="Pending"),
    "Init:0/1": pod(phase="Pending", init=[container(RUNS, name="init-code")]),
    "Init:1/2": pod(
        phase="Pending", init=[container(DONE, name="a"), container(waits("PodInitializing"))]
    ),
    "Init:Error": pod(phase="Failed", init=[container(FAILED, name="init-code")]),
    "Init:ErrImagePull": pod(phase="Pending", init=[container(waits("ErrImagePull"))]),
    "Signal:9": pod(container({"terminated": {"exitCode": 137, "signal": 9}}), phase="Failed"),
    "ExitCode:4": pod(container({"terminated": {"exitCode": 4}}), phase="Failed"),
}


@pytest.mark.parametrize("word", WORDS)
def test_a_pod_is_called_what_kubectl_calls_it(word: str) -> None:
    assert pod_status.status(WORDS[word]) == word


def test_a_pod_with_one_container_that_is_done_and_one_that_runs_still_runs() -> None:
    both = pod(container(DONE), container(RUNS, ready=True, name="sidecar"))
    assert pod_status.status(both) == "Running"


def with_sidecar(state: Json, started: bool, *containers: Json, phase: str = "Running") -> Json:
    """As Kubernetes has them since 1.28: among the containers that prepare, and never done."""
    proxy = {**container(state, name="proxy"), "started": started}
    made = pod(*containers, phase=phase, init=[proxy, container(DONE, name="fetch")])
    made["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    return made


def test_a_sidecar_that_runs_keeps_no_pod_from_running() -> None:
    running = with_sidecar(RUNS, True, container(RUNS, ready=True))
    assert pod_status.status(running) == "Running"
    assert pod_status.begun(running) == "et"
    begins = with_sidecar(RUNS, False, container(waits("PodInitializing")), phase="Pending")
    assert pod_status.status(begins) == "Init:0/2"


def test_how_a_sidecar_was_ended_says_nothing_of_the_program() -> None:
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    failed = with_sidecar(killed, False, container(FAILED), phase="Failed")
    assert (pod_status.exit_code(failed), pod_status.status(failed)) == (3, "Error")
    done = with_sidecar(killed, False, container(DONE), phase="Succeeded")
    assert (pod_status.exit_code(done), pod_status.status(done)) == (0, "Completed")


def test_a_pod_that_is_being_deleted_is_terminating_whatever_it_does() -> None:
    leaving = pod(container(RUNS, ready=True))
    leaving["metadata"]["deletionTimestamp"] = MADE
    assert pod_status.status(leaving) == "Terminating"
    leaving["status"]["reason"] = "NodeLost"
    assert pod_status.status(leaving) == "Unknown"


def test_why_a_pod_waits_or_has_ended_is_said() -> None:
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    waiting = {"type": "PodScheduled", "status": "False", "message": message}
    assert pod_status.reason(pod(phase="Pending", conditions=[waiting])) == message
    assert "cannot be pulled (ErrImagePull)" in pod_status.reason(WORDS["ErrImagePull"])
    assert pod_status.reason(WORDS["Error"]) == "its program ended with code 3"
    assert "more memory than its limit" in pod_status.reason(WORDS["OOMKilled"])
    assert "low on memory" in pod_status.reason(WORDS["Evicted"])
    assert pod_status.reason(WORDS["Running"]) == ""


def test_an_exit_by_a_signal_is_its_number_negative() -> None:
    assert pod_status.exit_code(WORDS["OOMKilled"]) == -9
    assert pod_status.exit_code(WORDS["Error"]) == 3
    assert pod_status.exit_code(WORDS["Running"]) is None


def test_the_log_that_matters_is_that_of_what_prepares_a_pod_and_then_of_its_own() -> None:
    assert pod_status.begun(WORDS["Init:0/1"]) == "init-code"
    assert pod_status.begun(WORDS["Running"]) == "et"
    assert pod_status.begun(WORDS["Running"], "sidecar") is None
    assert pod_status.begun(WORDS["ContainerCreating"]) is None
    chosen = pod(container(RUNS, name="sidecar"))
    chosen["metadata"]["annotations"] = {pod_status.DEFAULT_CONTAINER: "sidecar"}
    assert pod_status.begun(chosen) == "sidecar"
    with pytest.raises(UsageError, match="no container 'x'; there are et, sidecar"):
        pod_status.begun(WORDS["Running"], "x")


# --- jobs -----------------------------------------------------------------------------------------


def obj(**annotations: str) -> Json:
    meta = {"name": "demo", "namespace": "default", "uid": "u", "creationTimestamp": MADE}
    return {"kind": names.TRAININGJOB, "metadata": {**meta, "annotations": annotations}}


def chief(**status: Any) -> Json:
    found = pod(container(RUNS, ready=True), hostIP="10.0.0.7", **status)
    found["metadata"]["name"] = "demo-launcher"
    found["metadata"]["labels"][names.ROLE] = "launcher"
    return found


def saved(job: Job, **annotations: str) -> Json:
    """The object of a job, with what the controller has saved of it."""
    made = obj(**annotations)
    shown = status.write(status.Saved(job), {}, NOW, summary.of_job(made, job))
    return {**made, "status": shown}


def test_a_job_that_a_queue_has_not_let_go_is_queuing_until_something_of_it_starts() -> None:
    waiting, held = Job(jobs.spec(), "u", jobs.NOW, 2), {names.SUSPEND: "true"}
    assert summary.phase_of(obj(**held), "etjob") == "QUEUING"
    assert summary.phase_of(saved(waiting, **held), "etjob") == "QUEUING"
    assert summary.phase_of(saved(waiting, **{names.SUSPEND: "false"}), "etjob") == "PENDING"
    assert summary.phase_of(saved(jobs.running(), **held), "etjob") == "RUNNING"
    stopped = replace(jobs.running(), phase=Phase.PENDING, held="a queue")
    assert summary.phase_of(saved(stopped, **held), "etjob") == "QUEUING"
    assert (
        summary.phase_of(saved(replace(waiting, phase=Phase.FAILED), **held), "etjob") == "FAILED"
    )


WHOLE = {
    "an etjob": training_job(),
    "an etjob with slots": training_job(slotsPerWorker=3),
    "a pytorchjob": pytorch_job(),
    "an elastic pytorchjob": pytorch_job(elasticPolicy={"minReplicas": 2, "maxReplicas": 5}),
    "an elastic pytorchjob without bounds": pytorch_job(elasticPolicy={}),
    "a master alone": pytorch_job(workers=0),
}


@pytest.mark.parametrize("which", WHOLE)
def test_the_summary_in_the_status_is_all_that_a_list_needs(which: str) -> None:
    whole = copy.deepcopy(WHOLE[which])
    whole["metadata"]["creationTimestamp"] = MADE
    for replicas in _replicas(whole).values():
        replicas["template"]["spec"]["priorityClassName"] = "high"
    spec = job_spec.spec_of(whole)
    job = Job(spec, whole["metadata"]["uid"], jobs.NOW, spec.workers + 1, Phase.RUNNING)
    job = replace(job, reason="r", commit="abc", started_at=NOW - 10, instances=_some(spec))
    found = summary.of_job(whole, job, "10.0.0.7")
    whole["status"] = status.write(status.Saved(job), {}, NOW, found)
    assert status.read(whole, spec).job == job
    whole.pop("spec")  # nothing of it is read
    shown = summary.summary(whole, spec.kind.value, NOW)
    assert (shown["status"], shown["reason"], shown["commit"]) == ("RUNNING", "r", "abc")
    assert (shown["workers"], shown["minWorkers"], shown["maxWorkers"]) == (
        job.wanted,
        spec.least,
        spec.most,
    )
    assert shown["requestGPUs"] == job.wanted * spec.gpus
    assert shown["allocatedGPUs"] == spec.gpus
    assert (shown["priority"], shown["labels"]) == (spec.container.priority, spec.labels)
    assert shown["chiefName"] == roster.chief_name(spec)
    assert (shown["duration"], shown["node"]) == (10.0, "10.0.0.7")
    assert shown["createTime"] == time_text(jobs.NOW)


def _replicas(whole: Json) -> Json:
    spec: Json = whole["spec"]
    found: Json = spec.get("etReplicaSpecs") or spec["pytorchReplicaSpecs"]
    return found


def _some(spec: Spec) -> dict[str, Instance]:
    """A chief that has ended, and a worker that runs."""
    chief = Instance(roster.chief_name(spec), Role.LAUNCHER, 0, spec.gpus, 1.0, Stage.ERROR)
    worker = Instance(roster.worker_name(spec, 0), Role.WORKER, 0, spec.gpus, 1.0, Stage.RUNNING)
    worker = replace(worker, node="node-1")
    return {each.name: each for each in (chief, worker)}


def test_an_object_of_any_shape_has_a_summary() -> None:
    odd = {**obj(), "spec": {"etReplicaSpecs": {"worker": "x"}}, "status": {"phase": 7}}
    shown = summary.summary(odd, "etjob", NOW)
    assert (shown["status"], shown["workers"], shown["node"]) == ("PENDING", 0, "N/A")


@pytest.mark.parametrize("which", WHOLE)
def test_a_job_that_no_operator_has_seen_is_summed_up_from_its_object(which: str) -> None:
    whole = copy.deepcopy(WHOLE[which])
    whole["metadata"]["creationTimestamp"] = MADE
    spec = job_spec.spec_of(whole)
    del whole["kind"]  # as in a list
    shown = summary.summary(whole, spec.kind.value, NOW)
    assert (shown["status"], shown["workers"], shown["maxWorkers"]) == (
        "PENDING",
        spec.workers,
        spec.most,
    )
    assert (shown["duration"], shown["allocatedGPUs"]) == (100.0, 0)


def test_an_instance_is_shown_as_its_pod_is_and_one_without_a_pod_as_the_controller_says() -> None:
    job = jobs.running(2)
    waiting = replace(
        job.instances["demo-worker-1"], stage=Stage.PENDING, reason="no room", node=""
    )
    job = replace(job, instances={**job.instances, "demo-worker-1": waiting})
    mine = pod(container(FAILED), phase="Failed", hostIP="10.0.0.8")
    shown = views.view(obj(), job, [mine, chief()], NOW)
    first, failed, pending = shown["instances"]
    assert (first["name"], first["chief"], first["status"]) == ("demo-launcher", True, "Running")
    assert (failed["status"], failed["exitCode"], failed["node"]) == ("Error", 3, "node-1")
    assert (failed["nodeIP"], failed["age"]) == ("10.0.0.8", 100.0)
    assert (pending["status"], pending["reason"], pending["node"]) == ("Pending", "no room", "N/A")
    assert shown["node"] == "10.0.0.7"


def test_pods_that_the_controller_does_not_know_yet_are_shown_and_helpers_are_not() -> None:
    code = pod(container(RUNS))
    code["metadata"]["labels"][names.ROLE] = "code"
    shown = views.view(obj(), Job(jobs.spec(), "u", jobs.NOW, 2), [code, pod(), chief()], NOW)
    assert [each["name"] for each in shown["instances"]] == ["demo-launcher", "demo-worker-0"]
    assert shown["instances"][1]["restarts"] == 1


def test_gpus_are_counted_where_pods_have_a_node_and_are_not_over() -> None:
    holding, over = pod(container(RUNS)), pod(container(DONE), phase="Succeeded")
    for each in (holding, over):
        each["spec"]["containers"][0]["resources"] = {"limits": {names.GPU: "2"}}
    over["metadata"]["name"] = "demo-worker-1"
    shown = views.view(obj(), jobs.running(2), [holding, over], NOW)
    assert shown["allocatedGPUs"] == 2
    assert [each["requestGPUs"] for each in shown["instances"]] == [0, 2, 2]


def test_secrets_are_hidden_in_a_view() -> None:
    job = jobs.running()
    job = replace(job, spec=replace(job.spec, secrets={"GIT_SYNC_PASSWORD": "geheim"}))
    assert "geheim" not in str(views.view(obj(), job, [], NOW))


def test_an_object_that_cannot_be_read_is_there_with_what_is_wrong() -> None:
    shown = views.broken_view(obj(), "spec.x is missing", [chief()], NOW)
    assert (shown["status"], shown["reason"]) == ("PENDING", "spec.x is missing")
    assert shown["chiefName"] == shown["instances"][0]["name"] == "demo-launcher"
    refused = {**obj(), "status": status.refused_job("no", 1, NOW)}
    shown = views.broken_view(refused, "x", [], NOW)
    assert (shown["status"], shown["reason"]) == ("FAILED", "no")


def test_a_job_that_another_operator_runs_is_told_by_its_conditions() -> None:
    ran = [{"type": "Created", "status": "True"}, {"type": "Running", "status": "False"}]
    ended = {"type": "Failed", "status": "True", "message": "backoff limit"}
    theirs = {"conditions": [*ran, ended], "startTime": MADE, "completionTime": MADE}
    job = foreign.as_stated(Job(jobs.spec(), "u", 0.0, 2), {"status": theirs})
    assert (job.phase, job.reason, job.started_at) == (Phase.FAILED, "backoff limit", jobs.NOW)
    assert foreign.is_foreign({"status": theirs}) and not foreign.is_foreign({"status": {}})
    assert not foreign.is_foreign({"status": {"midflight": {}}})
    master = {"metadata": {"labels": {foreign.KUBEFLOW_ROLE: "Master"}}}
    assert foreign.role_of(master) == "master"


# --- nodes ----------------------------------------------------------------------------------------


def node(name: str, ready: str | None = "True", **labels: str) -> Json:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    addresses = [
        {"type": "Hostname", "address": name},
        {"type": "InternalIP", "address": "10.0.0.1"},
    ]
    status = {"capacity": {names.GPU: "4"}, "conditions": conditions, "addresses": addresses}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def test_a_node_has_its_address_role_state_and_the_gpus_that_anybody_holds() -> None:
    mine = pod(container(RUNS))
    mine["spec"]["containers"][0]["resources"] = {"limits": {names.GPU: "1"}}
    foreign = pod(container(RUNS))
    foreign["metadata"]["labels"] = {}
    foreign["spec"]["containers"][0]["resources"] = {"limits": {names.GPU: "2"}}
    over = pod(container(DONE), phase="Succeeded")
    over["spec"] = mine["spec"]
    (shown,) = nodes.node_views([node("node-1")], [mine, foreign, over])
    assert (shown["address"], shown["role"], shown["status"]) == ("10.0.0.1", "<none>", "Ready")
    assert (shown["gpus"], shown["allocatedGPUs"]) == (4, 3)
    assert shown["instances"] == ["default/demo/demo-worker-0"]


def test_nodes_come_by_name_with_roles_and_troubles() -> None:
    roles = {"node-role.kubernetes.io/master": "", "kubernetes.io/role": "master"}
    cordoned = node("b", **roles)
    cordoned["spec"]["unschedulable"] = True
    shown = nodes.node_views([node("c", "Unknown"), cordoned, node("a", None)], [])
    assert [each["name"] for each in shown] == ["a", "b", "c"]
    assert [each["status"] for each in shown] == [
        "Unknown",
        "Ready,SchedulingDisabled",
        "NotReady",
    ]
    assert shown[1]["role"] == "master"


# --- events ---------------------------------------------------------------------------------------


def event(kind: str, name: str, at: str, version: str = "1", **more: Any) -> Json:
    about = {"kind": kind, "name": name, "namespace": "default"}
    meta = {"namespace": "default", "resourceVersion": version}
    usual = {"type": "Normal", "reason": "R", "message": "a\nb", "lastTimestamp": at}
    return {"metadata": meta, "involvedObject": about, **usual, **more}


def test_events_of_a_job_its_pods_and_its_scalers_come_in_order() -> None:
    found = [
        event("ScaleOut", "demo-1700000100", "2023-11-14T22:15:00Z"),
        event("Pod", "demo-worker-0", "2023-11-14T22:14:00Z", "9", count=3),
        event("TrainingJob", "demo", "2023-11-14T22:14:00Z", "8"),
        event("Pod", "demo-two-worker-0", MADE),
        event("TrainingJob", "other", MADE),
        event("Node", "node-1", MADE),
    ]
    shown = events.events(found, "demo")
    assert [each["source"] for each in shown] == [
        "trainingjob/demo",
        "pod/demo-worker-0",
        "scaleout/demo-1700000100",
    ]
    assert shown[1]["message"] == "a b (x3)"
    everybody = events.events(found)
    assert {each["job"] for each in everybody} == {"demo", "demo-two", "other"}


def test_events_of_the_newer_api_have_their_times_elsewhere() -> None:
    newer = event("Pod", "demo-launcher", "", eventTime="2023-11-14T22:13:21.500000Z")
    newer["lastTimestamp"] = None
    assert events.events([newer])[0]["time"] == "2023-11-14T22:13:21.500Z"


def test_an_instance_of_no_pod_keeps_what_the_controller_knows_of_its_end() -> None:
    ended = Instance("demo-launcher", Role.LAUNCHER, 0, 0, jobs.NOW, Stage.ERROR, exit_code=2)
    job = replace(jobs.running(0), instances={"demo-launcher": ended})
    (shown,) = views.view(obj(), job, [], NOW)["instances"]
    assert (shown["status"], shown["exitCode"]) == ("Error", 2)
