"""What the definitions of several custom resources are made of: fields, pod templates, statuses.

A pod template is typed only where a mistake would otherwise be found late, when its first pod is
refused; all the rest of it is kept as it is, whatever version of Kubernetes it was written for.
Statuses carry et-operator's fields, and ours beside them.
"""

from collections.abc import Iterable
from typing import Any

from midflight.controller.spec_check import LONGEST_NAME
from midflight.kubernetes import names

Schema = dict[str, Any]

_KEEP = "x-kubernetes-preserve-unknown-fields"
RESTARTS = ("Always", "OnFailure", "Never", "ExitCode")
SHORT_NAME = (
    f"self.metadata.name.size() <= {LONGEST_NAME}",
    f"a job's name has at most {LONGEST_NAME} characters, since names of pods are made of it",
)
_CATEGORIES = ["all", "midflight"]  # `kubectl get all` shows them


# --- fields ---------------------------------------------------------------------------------------


def string(about: str = "", **more: Any) -> Schema:
    return _field("string", about, more)


def text(about: str = "") -> Schema:
    """May be empty. Some API servers (built with a recent Go) take an empty string for null."""
    return string(about, nullable=True)


def boolean(about: str = "", **more: Any) -> Schema:
    return _field("boolean", about, more)


def integer(about: str = "", minimum: int | None = None, **more: Any) -> Schema:
    bound = {} if minimum is None else {"minimum": minimum}
    return _field("integer", about, {"format": "int32", **bound, **more})


def choice(about: str, values: tuple[str, ...], **more: Any) -> Schema:
    return _field("string", about, {"enum": list(values), **more})


def array(items: Schema, about: str = "", **more: Any) -> Schema:
    return _field("array", about, {"items": items, **more})


def record(
    properties: dict[str, Schema], required: tuple[str, ...] = (), about: str = "", **more: Any
) -> Schema:
    needed = {"required": list(required)} if required else {}
    return _field("object", about, {**needed, "properties": properties, **more})


def open_record(
    properties: dict[str, Schema], required: tuple[str, ...] = (), about: str = ""
) -> Schema:
    """Fields that are not named here are kept."""
    made = record(properties, required, about, **{_KEEP: True})
    return made if properties else {k: v for k, v in made.items() if k != "properties"}


def mapping(values: Schema, about: str = "") -> Schema:
    return _field("object", about, {"additionalProperties": values})


def keyed(items: Schema, key: str, about: str = "", **more: Any) -> Schema:
    """A list in which each key stands once."""
    listed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return array(items, about, **listed, **more)


def with_rules(schema: Schema, *rules: tuple[str, str]) -> Schema:
    """Rules with their messages. Clusters before 1.25 drop them; the operator knows them too."""
    listed = [{"rule": rule, "message": message} for rule, message in rules]
    return {**schema, "x-kubernetes-validations": listed}


def _field(kind: str, about: str, more: dict[str, Any]) -> Schema:
    return {"type": kind, **({"description": about} if about else {}), **more}


# --- pods -----------------------------------------------------------------------------------------


def pod_template(about: str) -> Schema:
    variable = open_record(
        {
            "name": string("The name of the variable.", minLength=1),
            "value": text("The value, in which $(NAME) stands for another variable."),
        },
        ("name",),
    )
    container = open_record(
        {
            "name": string("The name of the container in its pod.", minLength=1),
            "image": string("The image that the container runs.", minLength=1),
            "command": array(text(), "The program with its first arguments."),
            "args": array(text(), "Arguments that follow the command."),
            "env": array(variable, "The variables of the container's environment."),
        },
        ("name", "image"),
    )
    metadata = open_record(
        {
            "labels": mapping(text(), "Labels that the pods get beside Midflight's own."),
            "annotations": mapping(text(), "Annotations that the pods get."),
        },
        about="Labels and annotations of the pods.",
    )
    containers = keyed(
        container, "name", "The containers of a pod, of which the first one trains.", minItems=1
    )
    spec = open_record(
        {"containers": containers}, ("containers",), "What a pod is, as in any Kubernetes pod."
    )
    return open_record({"metadata": metadata, "spec": spec}, ("spec",), about)


# --- statuses -------------------------------------------------------------------------------------


def status(**more: Schema) -> Schema:
    """Of a job or a scaler: et-operator's fields, and `more`."""
    return record(
        {
            "phase": text("How far the object has come, in one word."),
            "conditions": keyed(
                _condition(), "type", "What has happened to the object, each with its reason."
            ),
            "replicaStatuses": mapping(_replica_status(), "The pods of the job, counted by role."),
            "startTime": _time("When the object first ran."),
            "completionTime": _time("When the object was over."),
            "lastReconcileTime": _time("When the operator last wrote this status."),
            "observedGeneration": integer(
                "The generation of the spec that this status is about.", format="int64"
            ),
            "midflight": open_record({}, about="What the operator remembers, for itself alone."),
            **more,
        },
        about="How far the operator has come with the object.",
    )


def job_status() -> Schema:
    return status(
        currentScaler=text("The scale request at work, as KIND:NAMESPACE/NAME."),
        restartCount=integer("How often the whole job was started again.", 0),
        targetWorkers=array(string(), "The workers that the job is to have."),
        currentWorkers=array(string(), "The workers that run now."),
        replicas=integer("The number of workers, for the scale subresource.", 0),
        selector=text("The labels of the workers, for the scale subresource."),
    )


def _condition() -> Schema:
    return record(
        {
            "type": string("What the condition is about."),
            "status": choice("Whether the condition holds.", ("True", "False", "Unknown")),
            "reason": text("Why it is so, in one word."),
            "message": text("Why it is so, in a sentence."),
            "lastUpdateTime": _time("When the condition was last written."),
            "lastTransitionTime": _time("When the status of the condition last changed."),
        },
        ("type", "status"),
    )


def _replica_status() -> Schema:
    return record(
        {
            "active": integer("The number of pods that run.", 0),
            "succeeded": integer("The number of pods that succeeded.", 0),
            "failed": integer("The number of pods that failed.", 0),
            "selector": text("The labels of these pods, as text."),
            "labelSelector": open_record({}, about="The labels of these pods, as a selector."),
        }
    )


def _time(about: str) -> Schema:
    return string(about, format="date-time")


# --- definitions ----------------------------------------------------------------------------------


def root(spec: Schema, state: Schema) -> Schema:
    return record(
        {
            "apiVersion": string(),  # the API server describes these three itself
            "kind": string(),
            "metadata": {"type": "object"},
            "spec": spec,
            "status": state,
        },
        ("spec",),
    )


def definition(
    identity: tuple[str, str, str, str],
    schema: Schema,
    columns: Iterable[dict[str, Any]],
    scaled: str = "",
) -> dict[str, Any]:
    """`identity`: group, version, kind and short name. `scaled`: where the number of workers is."""
    group, version, kind, short = identity
    plural = f"{kind.lower()}s"
    scale = {
        "specReplicasPath": scaled,
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "labels": {names.MANAGED_BY: names.MANAGER},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": list(_CATEGORIES),
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **({"scale": scale} if scaled else {})},
                    "additionalPrinterColumns": list(columns),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def column(name: str, path: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **more}


AGE = column("Age", ".metadata.creationTimestamp", "date")
