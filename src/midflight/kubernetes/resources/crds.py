"""The custom resources that Midflight answers to: TrainingJob, ScaleOut, ScaleIn and PyTorchJob.

The first three are et-operator's, field for field, so that manifests written for it go on working;
what we add to them is optional. The fourth is Kubeflow's, for clusters on which its own operator is
not installed. Whatever a schema can say is said here, so that the API server refuses a mistake and
names the field; what relates several fields is a rule, and is checked by the operator as well.
"""

from typing import Any

from midflight.controller.spec import ANY_NUMBER
from midflight.controller.spec_check import CLEAN_POLICIES, JOB_POLICIES, RUN_IN, SYNC_MODES
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
    keyed,
    open_record,
    pod_template,
    record,
    root,
    status,
    string,
    text,
    with_rules,
)
from midflight.kubernetes.resources.templates import MOST_WORKERS

_NO_OPTION = "^[^-]"  # git and rsync would take a word with a dash in front for an option


def crds() -> list[dict[str, Any]]:
    return [_trainingjob(), _scaleout(), _scalein(), _pytorchjob()]


# --- TrainingJob ----------------------------------------------------------------------------------


def _trainingjob() -> dict[str, Any]:
    worker = ".spec.etReplicaSpecs.worker"
    return definition(
        (names.GROUP, names.VERSION, names.TRAININGJOB, "tj"),
        with_rules(root(_trainingjob_spec(), job_status()), SHORT_NAME),
        [
            column("Phase", ".status.phase"),
            column("Workers", ".status.replicaStatuses.Worker.active", "integer"),
            column("Wanted", f"{worker}.replicas", "integer"),
            column("Min", f"{worker}.minReplicas", "integer", priority=1),
            column("Max", f"{worker}.maxReplicas", "integer", priority=1),
            column("Scaler", ".status.currentScaler", priority=1),
            column("Restarts", ".status.restartCount", "integer", priority=1),
            AGE,
        ],
        scaled=f"{worker}.replicas",
    )


def _trainingjob_spec() -> Schema:
    return record(
        {
            "etReplicaSpecs": record(
                {"launcher": _launcher(), "worker": _worker()},
                ("launcher", "worker"),
                "The pods of the job, by role.",
            ),
            "cleanPodPolicy": choice(
                "Which pods are deleted when the job is over.",
                ("", *CLEAN_POLICIES),
                default="Running",
            ),
            "launcherAttachMode": choice(
                "This is accepted and has no effect, because agents dial the launcher themselves.",
                ("ssh", "kubexec"),
            ),
            "slotsPerWorker": integer(
                "The number of training processes in each worker (its accelerators, or 1).",
                minimum=1,
            ),
            "restartPolicy": choice(
                "Whether the whole job is started again after a failure.",
                JOB_POLICIES,
                default="Never",
            ),
            "backoffLimit": integer(
                "How often the whole job is started again.", minimum=0, default=6
            ),
            "activeDeadlineSeconds": integer(
                "How many seconds the job may run.", minimum=1, format="int64"
            ),
            "ttlSecondsAfterFinished": integer(
                "How many seconds after its end the job is deleted (never, if this is not set).",
                minimum=0,
            ),
            "maxWaitSeconds": integer(
                "After how many seconds a job that still waits fails.", minimum=1
            ),
            "runIn": choice(
                "Whether the command starts the training (launcher) or is it (workers); "
                "auto, the default, goes by its words.",
                RUN_IN,
            ),
            "shell": string("The shell that reads the command (sh).", minLength=1),
            "sync": _sync(),
        },
        ("etReplicaSpecs",),
        "What the job runs, and with how many workers.",
    )


def _launcher() -> Schema:
    return record(
        {
            "replicas": integer(
                "The number of launchers, which is always 1.", minimum=1, maximum=1, default=1
            ),
            "restartPolicy": choice(
                "This is accepted and has no effect, because a lost launcher is always replaced.",
                RESTARTS,
            ),
            "template": pod_template("The template of the pod that runs the command."),
        },
        ("template",),
        "The pod that runs the command and the coordinator.",
    )


def _worker() -> Schema:
    made = record(
        {
            "replicas": integer(
                "The number of workers to have.", minimum=1, maximum=MOST_WORKERS, default=1
            ),
            "minReplicas": integer(
                "The number of workers with which the job still runs.",
                minimum=1,
                maximum=MOST_WORKERS,
                default=1,
            ),
            "maxReplicas": integer(
                "The number of workers beyond which the job never grows.",
                minimum=1,
                default=ANY_NUMBER,
            ),
            "restartPolicy": choice(
                "Which workers are replaced when they are lost.", RESTARTS, default="Always"
            ),
            "template": pod_template(
                "The template of the pods that train, whose command Midflight sets."
            ),
        },
        ("template",),
        "The pods that train.",
    )
    return with_rules(
        made,
        ("self.minReplicas <= self.maxReplicas", "minReplicas is more than maxReplicas"),
        (
            "self.minReplicas <= self.replicas && self.replicas <= self.maxReplicas",
            "replicas must be between minReplicas and maxReplicas",
        ),
    )


def _sync() -> Schema:
    return record(
        {
            "mode": choice("How the code is fetched.", SYNC_MODES),
            "source": string(
                "Where the code is fetched from, without a login.", pattern=_NO_OPTION
            ),
            "branch": string("The branch of git (its usual one).", pattern=_NO_OPTION),
            "revision": string("The revision of git (the newest).", pattern=_NO_OPTION),
            "image": string("The image that fetches the code."),
        },
        ("mode", "source"),
        "The code that is fetched once, before anything starts.",
    )


# --- ScaleOut, ScaleIn ----------------------------------------------------------------------------


def _scaleout() -> dict[str, Any]:
    count = {
        "count": _unchanging(
            integer("The number of workers to add.", minimum=1, maximum=MOST_WORKERS)
        )
    }
    spec = _scaler_spec(
        "toAdd",
        record(count, ("count",), "The workers to add."),
        partial=boolean(
            "Whether workers that came in time stay when others did not.", default=False
        ),
    )
    return definition(
        (names.GROUP, names.VERSION, names.SCALEOUT, "sout"),
        root(spec, status(addPods=array(string(), "The workers that came or are to come."))),
        _scaler_columns(".spec.toAdd.count"),
    )


def _scalein() -> dict[str, Any]:
    request = record(
        {
            "count": _unchanging(
                integer("The number of workers to remove, the newest first.", minimum=1)
            ),
            "podNames": array(
                string(minLength=1, maxLength=253),
                "The names of the workers to remove.",
                minItems=1,
                maxItems=ANY_NUMBER,
                **{"x-kubernetes-list-type": "set"},
            ),
        },
        about="The workers to remove, by count or podNames.",
        anyOf=[{"required": ["count"]}, {"required": ["podNames"]}],
    )
    return definition(
        (names.GROUP, names.VERSION, names.SCALEIN, "sin"),
        root(
            _scaler_spec("toDelete", request),
            status(toDeletePods=array(string(), "The workers that left or are to leave.")),
        ),
        _scaler_columns(".spec.toDelete.count"),
    )


def _scaler_spec(field: str, schema: Schema, **more: Schema) -> Schema:
    name = string("The name of the TrainingJob, in the same namespace.", minLength=1, maxLength=253)
    variable = record(
        {
            "name": string("The name of the variable.", minLength=1),
            "value": text("The value of the variable."),
        },
        ("name",),
    )
    return record(
        {
            field: schema,
            "selector": record({"name": _unchanging(name)}, ("name",), "The job to scale."),
            "timeout": integer(
                "After how many seconds an unfinished request is undone.", minimum=1, default=60
            ),
            "script": text("This is accepted and has no effect, because no script is needed."),
            "env": keyed(variable, "name", "This is accepted and has no effect."),
            "backoffLimit": integer("This is accepted and has no effect.", minimum=0),
            **more,
        },
        (field, "selector"),
        "Which job is scaled, and by how much.",
    )


def _unchanging(schema: Schema) -> Schema:
    return with_rules(schema, ("self == oldSelf", "cannot be changed: make another object"))


def _scaler_columns(count: str) -> list[dict[str, Any]]:
    return [
        column("Phase", ".status.phase"),
        column("Job", ".spec.selector.name"),
        column("Count", count, "integer"),
        column("Timeout", ".spec.timeout", "integer", priority=1),
        AGE,
    ]


# --- PyTorchJob ----------------------------------------------------------------------------------


def _pytorchjob() -> dict[str, Any]:
    worker = ".spec.pytorchReplicaSpecs.Worker.replicas"
    return definition(
        (names.PYTORCH_GROUP, names.PYTORCH_VERSION, names.PYTORCHJOB, "ptj"),
        with_rules(root(_pytorchjob_spec(), job_status()), SHORT_NAME),
        [
            column("State", ".status.phase"),
            column("Workers", ".status.replicaStatuses.Worker.active", "integer"),
            column("Wanted", worker, "integer"),
            column("Min", ".spec.elasticPolicy.minReplicas", "integer", priority=1),
            column("Max", ".spec.elasticPolicy.maxReplicas", "integer", priority=1),
            AGE,
        ],
        scaled=worker,
    )


def _pytorchjob_spec() -> Schema:
    return record(
        {
            "pytorchReplicaSpecs": record(
                {
                    "Master": _pytorch_replicas("The pod of rank 0.", minimum=1, maximum=1),
                    "Worker": _pytorch_replicas(
                        "The pods of the other ranks.", minimum=0, maximum=MOST_WORKERS
                    ),
                },
                about="The pods of the job, of which the master trains as well.",
                anyOf=[{"required": ["Master"]}, {"required": ["Worker"]}],
            ),
            "elasticPolicy": _elastic_policy(),
            "nprocPerNode": string(
                "The number of training processes in each pod, or auto, cpu or gpu.",
                pattern="^(auto|cpu|gpu|[1-9][0-9]*)$",
            ),
            "runPolicy": _run_policy(),
        },
        ("pytorchReplicaSpecs",),
        "What the job runs, and with how many pods.",
    )


def _pytorch_replicas(about: str, **bounds: int) -> Schema:
    return record(
        {
            "replicas": integer("The number of these pods.", default=1, **bounds),
            "restartPolicy": choice(
                "When one of these pods is started again.", RESTARTS, default="OnFailure"
            ),
            "template": pod_template("The template of these pods."),
        },
        ("template",),
        about,
    )


def _elastic_policy() -> Schema:
    made = record(
        {
            "minReplicas": integer(
                "The number of pods with which the job still runs, with the master.",
                minimum=1,
                maximum=MOST_WORKERS,
            ),
            "maxReplicas": integer(
                "The number of pods beyond which the job never grows.", minimum=1
            ),
            "rdzvBackend": string("The rendezvous backend of torchrun (c10d)."),
            "rdzvHost": string("The host of the rendezvous (the master)."),
            "rdzvPort": integer("The port of the rendezvous.", minimum=1, maximum=65535),
            "rdzvId": string("The name of the rendezvous (that of the job)."),
            "rdzvConf": array(_setting(), "More settings of the rendezvous backend."),
            "standalone": boolean("This has no effect, because the pods of a job are one world."),
            "nProcPerNode": integer("An older place for spec.nprocPerNode.", minimum=1),
            "maxRestarts": integer("How often torchrun restarts its processes.", minimum=0),
            "metrics": array(
                open_record({}), "This has no effect: use an autoscaler of the scale subresource."
            ),
        },
        about="With it, workers may come and go while the job runs.",
    )
    rule = (
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas"
    )
    return with_rules(made, (rule, "minReplicas is more than maxReplicas"))


def _setting() -> Schema:
    return record(
        {
            "key": string("The name of the setting."),
            "value": string("The value of the setting."),
        }
    )


def _run_policy() -> Schema:
    scheduling = record(
        {
            "minAvailable": integer("The number of pods that are scheduled together.", minimum=0),
            "queue": string("The queue of the gang scheduler."),
            "minResources": open_record({}, about="The resources that the gang needs to start."),
            "priorityClass": string("The PriorityClass of the gang."),
            "scheduleTimeoutSeconds": integer(
                "How many seconds the scheduler waits for the gang.", minimum=0
            ),
        },
        about="How the pods of the job are scheduled together.",
    )
    return record(
        {
            "cleanPodPolicy": choice(
                "Which pods are deleted when the job is over.",
                ("", *CLEAN_POLICIES),
                default="None",
            ),
            "ttlSecondsAfterFinished": integer(
                "How many seconds after its end the job is deleted (never, if this is not set).",
                minimum=0,
            ),
            "activeDeadlineSeconds": integer(
                "How many seconds the job may run.", minimum=1, format="int64"
            ),
            "backoffLimit": integer("How often the job restarts after a failure.", minimum=0),
            "schedulingPolicy": scheduling,
            "suspend": boolean("Whether the job is kept from running, and stopped if it runs."),
            "managedBy": string(
                "Which controller runs the job (kubeflow.org/training-operator means Midflight)."
            ),
        },
        about="When the job ends, and what is left of it.",
        default={},
    )
