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
                {"launcher": _launcher(), "worker": _worker()}, ("launcher", "worker")
            ),
            "cleanPodPolicy": choice(
                "Which pods go when the job is over.", ("", *CLEAN_POLICIES), default="Running"
            ),
            "launcherAttachMode": choice(
                "Accepted, and without effect: agents come to the launcher by themselves.",
                ("ssh", "kubexec"),
            ),
            "slotsPerWorker": integer(
                "Training processes in each worker; else its GPUs, or 1.", minimum=1
            ),
            "restartPolicy": choice(
                "Of the whole job, after a failure.", JOB_POLICIES, default="Never"
            ),
            "backoffLimit": integer("Restarts of the whole job.", minimum=0, default=6),
            "activeDeadlineSeconds": integer("How long it may run.", minimum=1, format="int64"),
            "ttlSecondsAfterFinished": integer(
                "How long after its end it is deleted; 0: at once; else never.", minimum=0
            ),
            "maxWaitSeconds": integer("It fails if it still waits then.", minimum=1),
            "runIn": choice(
                "Whether the command starts the training (launcher) or is it (workers); "
                "auto, the default, goes by its words.",
                RUN_IN,
            ),
            "shell": string("That reads the command; else sh.", minLength=1),
            "sync": _sync(),
        },
        ("etReplicaSpecs",),
    )


def _launcher() -> Schema:
    return record(
        {
            "replicas": integer("There is one.", minimum=1, maximum=1, default=1),
            "restartPolicy": choice(
                "Accepted: a launcher that is lost is always replaced.", RESTARTS
            ),
            "template": pod_template("Of the pod that runs the command."),
        },
        ("template",),
    )


def _worker() -> Schema:
    made = record(
        {
            "replicas": integer(
                "How many there are to be.", minimum=1, maximum=MOST_WORKERS, default=1
            ),
            "minReplicas": integer(
                "It runs with so many.", minimum=1, maximum=MOST_WORKERS, default=1
            ),
            "maxReplicas": integer("It never grows beyond.", minimum=1, default=ANY_NUMBER),
            "restartPolicy": choice(
                "Which workers are replaced when they are lost.", RESTARTS, default="Always"
            ),
            "template": pod_template("Of the pods that train; their command is Midflight's."),
        },
        ("template",),
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
            "mode": choice("How it is fetched.", SYNC_MODES),
            "source": string(
                "From where; a login belongs in the job's Secret.", pattern=_NO_OPTION
            ),
            "branch": string("Of git; else its usual one.", pattern=_NO_OPTION),
            "revision": string("Of git; else the newest.", pattern=_NO_OPTION),
            "image": string("That fetches it."),
        },
        ("mode", "source"),
        "Code that is fetched once, before anything starts.",
    )


# --- ScaleOut, ScaleIn ----------------------------------------------------------------------------


def _scaleout() -> dict[str, Any]:
    count = {"count": _unchanging(integer("So many more.", minimum=1, maximum=MOST_WORKERS))}
    spec = _scaler_spec(
        "toAdd",
        record(count, ("count",), "Workers that come."),
        partial=boolean("Take what came in time, instead of all or nothing.", default=False),
    )
    return definition(
        (names.GROUP, names.VERSION, names.SCALEOUT, "sout"),
        root(spec, status(addPods=array(string(), "The workers that came, or are to."))),
        _scaler_columns(".spec.toAdd.count"),
    )


def _scalein() -> dict[str, Any]:
    request = record(
        {
            "count": _unchanging(integer("So many fewer; the newest go.", minimum=1)),
            "podNames": array(
                string(minLength=1, maxLength=253),
                "These go.",
                minItems=1,
                maxItems=ANY_NUMBER,
                **{"x-kubernetes-list-type": "set"},
            ),
        },
        about="Workers that leave: count or podNames.",
        anyOf=[{"required": ["count"]}, {"required": ["podNames"]}],
    )
    return definition(
        (names.GROUP, names.VERSION, names.SCALEIN, "sin"),
        root(
            _scaler_spec("toDelete", request),
            status(toDeletePods=array(string(), "The workers that left, or are to.")),
        ),
        _scaler_columns(".spec.toDelete.count"),
    )


def _scaler_spec(field: str, schema: Schema, **more: Schema) -> Schema:
    name = string("Of the TrainingJob, in the same namespace.", minLength=1, maxLength=253)
    variable = record({"name": string(minLength=1), "value": text()}, ("name",))
    return record(
        {
            field: schema,
            "selector": record({"name": _unchanging(name)}, ("name",), "The job."),
            "timeout": integer(
                "Seconds; what is not done by then is taken back.", minimum=1, default=60
            ),
            "script": text("Accepted, and without effect: no script is needed."),
            "env": keyed(variable, "name", "Accepted, and without effect."),
            "backoffLimit": integer("Accepted, and without effect.", minimum=0),
            **more,
        },
        (field, "selector"),
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
                    "Master": _pytorch_replicas("Rank 0.", minimum=1, maximum=1),
                    "Worker": _pytorch_replicas("The others.", minimum=0, maximum=MOST_WORKERS),
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


def _pytorch_replicas(about: str, **bounds: int) -> Schema:
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
            "minReplicas": integer(
                "It runs with so many, the master included.", minimum=1, maximum=MOST_WORKERS
            ),
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
