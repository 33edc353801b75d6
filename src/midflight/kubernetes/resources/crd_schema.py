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
    variable = open_record({"name": string(minLength=1), "value": text()}, ("name",))
    container = open_record(
        {
            "name": string(minLength=1),
            "image": string(minLength=1),
            "command": array(text()),
            "args": array(text()),
            "env": array(variable),
        },
        ("name", "image"),
    )
    metadata = open_record({"labels": mapping(text()), "annotations": mapping(text())})
    spec = open_record(
        {"containers": keyed(container, "name", "The first one trains.", minItems=1)},
        ("containers",),
    )
    return open_record({"metadata": metadata, "spec": spec}, ("spec",), about)


# --- statuses -------------------------------------------------------------------------------------


def status(**more: Schema) -> Schema:
    """Of a job or a scaler: et-operator's fields, and `more`."""
    return record(
        {
            "phase": text("How far it has come."),
            "conditions": keyed(_condition(), "type", "What has happened to it."),
            "replicaStatuses": mapping(_replica_status(), "Its pods, counted by role."),
            "startTime": _time("When it first ran."),
            "completionTime": _time("When it was over."),
            "lastReconcileTime": _time("When the operator last wrote this."),
            "observedGeneration": integer(
                "The generation of the spec that this is about.", format="int64"
            ),
            "midflight": open_record({}, about="What the operator remembers; not for others."),
            **more,
        }
    )


def job_status() -> Schema:
    return status(
        currentScaler=text("The scaler at work, as KIND:NAMESPACE/NAME."),
        restartCount=integer("How often the whole job was started again.", 0),
        targetWorkers=array(string(), "The workers that it is to have."),
        currentWorkers=array(string(), "The workers that run."),
        replicas=integer("How many workers there are; for the scale subresource.", 0),
        selector=text("Labels of its workers; for the scale subresource."),
    )


def _condition() -> Schema:
    return record(
        {
            "type": string(),
            "status": choice("", ("True", "False", "Unknown")),
            "reason": text(),
            "message": text(),
            "lastUpdateTime": _time(),
            "lastTransitionTime": _time(),
        },
        ("type", "status"),
    )


def _replica_status() -> Schema:
    counts = {name: integer(minimum=0) for name in ("active", "succeeded", "failed")}
    return record({**counts, "selector": text(), "labelSelector": open_record({})})


def _time(about: str = "") -> Schema:
    return string(about, format="date-time")


# --- definitions ----------------------------------------------------------------------------------


def root(spec: Schema, state: Schema) -> Schema:
    return record(
        {
            "apiVersion": string(),
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
