"""The custom resource PyTorchJob: Kubeflow's, for clusters that do not have its own operator.

Its fields and their meaning are Kubeflow's. `minReplicas` and `maxReplicas` count all the pods that
train, the master included, as the number of nodes of a rendezvous does.
"""

from typing import Any

from midflight.controller.checking import CLEAN_POLICIES
from midflight.kubernetes import names
from midflight.kubernetes.resources.crd_schema import (
    AGE,
    RESTARTS,
    SHORT_NAME,
    Schema,
    array,
    boolean,
    choice,
    column,
    definition,
    integer,
    job_status,
    open_record,
    pod_template,
    record,
    root,
    string,
    with_rules,
)


def pytorchjob() -> dict[str, Any]:
    worker = ".spec.pytorchReplicaSpecs.Worker.replicas"
    return definition(
        (names.PYTORCH_GROUP, names.PYTORCH_VERSION, names.PYTORCHJOB, "ptj"),
        with_rules(root(_spec(), job_status()), SHORT_NAME),
        [
            column("State", ".status.phase"),
            column("Workers", ".status.replicas", "integer"),
            column("Wanted", worker, "integer"),
            column("Min", ".spec.elasticPolicy.minReplicas", "integer", priority=1),
            column("Max", ".spec.elasticPolicy.maxReplicas", "integer", priority=1),
            AGE,
        ],
        scaled=worker,
    )


def _spec() -> Schema:
    return record(
        {
            "pytorchReplicaSpecs": record(
                {
                    "Master": _replicas("Rank 0.", minimum=1, maximum=1),
                    "Worker": _replicas("The others.", minimum=0),
                },
                about="Its pods; the master is one of those that train.",
                anyOf=[{"required": ["Master"]}, {"required": ["Worker"]}],
            ),
            "elasticPolicy": _elastic_policy(),
            "nprocPerNode": string(
                "Training processes in each pod: auto, cpu, gpu or a number.",
                pattern="^(auto|cpu|gpu|[1-9][0-9]*)$",
            ),
            "runPolicy": _run_policy(),
        },
        ("pytorchReplicaSpecs",),
    )


def _replicas(about: str, **bounds: int) -> Schema:
    return record(
        {
            "replicas": integer("How many there are to be.", default=1, **bounds),
            "restartPolicy": choice("When one is started again.", RESTARTS, default="OnFailure"),
            "template": pod_template("Of these pods."),
        },
        ("template",),
        about,
    )


def _elastic_policy() -> Schema:
    made = record(
        {
            "minReplicas": integer("It runs with so many, the master included.", minimum=1),
            "maxReplicas": integer("It never grows beyond, the master included.", minimum=1),
            "rdzvBackend": string(),
            "rdzvHost": string(),
            "rdzvPort": integer(minimum=1, maximum=65535),
            "rdzvId": string(),
            "rdzvConf": array(record({"key": string(), "value": string()})),
            "standalone": boolean(),
            "nProcPerNode": integer("An older place for nprocPerNode.", minimum=1),
            "maxRestarts": integer(minimum=0),
            "metrics": array(open_record({})),
        },
        about="With it, workers may come and go while the job runs.",
    )
    rule = (
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas"
    )
    return with_rules(made, (rule, "minReplicas is more than maxReplicas"))


def _run_policy() -> Schema:
    scheduling = record(
        {
            "minAvailable": integer(minimum=0),
            "queue": string(),
            "minResources": open_record({}),
            "priorityClass": string(),
            "scheduleTimeoutSeconds": integer(minimum=0),
        }
    )
    return record(
        {
            "cleanPodPolicy": choice(
                "Which pods go when the job is over.", ("", *CLEAN_POLICIES), default="None"
            ),
            "ttlSecondsAfterFinished": integer(
                "How long after its end it is deleted; 0: at once; else never.", minimum=0
            ),
            "activeDeadlineSeconds": integer("How long it may run.", minimum=1, format="int64"),
            "backoffLimit": integer("Restarts after a failure.", minimum=0),
            "schedulingPolicy": scheduling,
            "suspend": boolean(
                "Keep it from running until this is false; one that runs stops, and begins anew."
            ),
            "managedBy": string(
                "Who looks after it: kubeflow.org/training-operator, or nobody named, is us."
            ),
        },
        default={},
    )
