"""From a spec that was submitted to the objects that `submit` gives to the API server, in order.

First what the pods will mount, then the job itself. The spec has passed `controller.checking`; what
only a cluster can object to is refused here as a UsageError. Nothing secret stands anywhere but in
the job's Secret: a login in the address of its code is moved there as well.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from midflight.controller.spec import LOGIN, Kind, Spec
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.manifests.flags import pairs
from midflight.kubernetes.manifests.pod_templates import (
    filled,
    launcher,
    trainer,
    user_labels,
    worker,
)
from midflight.kubernetes.manifests.tensorboard import tensorboard
from midflight.kubernetes.manifests.volumes import config_maps

GPUS_OF_JOB = "requestGPUsOfJobOwner"
_ARENA = "arena.kubeflow.org"
_LOGIN = re.compile(r"^(https?://)([^/@\s]+)@")
_SCALERS = {"scaleout": (names.SCALEOUT, "toAdd"), "scalein": (names.SCALEIN, "toDelete")}


def objects_of(spec: Spec, owner: str, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """`owner`: who submits it, "" if unknown. `files`: what --config-file names, by its path."""
    _check(spec)
    spec = _with_secrets_apart(spec)
    return [
        *(_object("v1", "ConfigMap", _named(spec, n), data=d) for n, d in config_maps(spec, files)),
        *_git_secret(spec),
        *(tensorboard(spec, _metadata(spec)) if spec.container.tensorboard else []),
        _trainingjob(spec, owner) if spec.kind is Kind.ETJOB else _pytorchjob(spec, owner),
    ]


def scale_object(
    kind: str, job: str, name: str, request: Mapping[str, Any], namespace: str = ""
) -> dict[str, Any]:
    """`kind`: scaleout or scalein. `request`: count, names, timeout, partial."""
    word, field = _SCALERS[kind.lower()]
    gone = list(request.get("names") or ())
    count = request.get("count") or len(gone) or 1
    spec = {
        field: {"count": count, **({"podNames": gone} if gone else {})},
        "selector": {"name": job},
        "timeout": _whole(request.get("timeout", 60)),
    }
    if word == names.SCALEOUT and request.get("partial"):
        spec["partial"] = True
    labels = {names.MANAGED_BY: names.MANAGER, names.JOB: job}
    metadata = filled({"name": name, "namespace": namespace, "labels": labels})
    return _object(names.API, word, metadata, spec=spec)


# --- jobs -----------------------------------------------------------------------------------------


def _trainingjob(spec: Spec, owner: str) -> dict[str, Any]:
    own = {
        "cleanPodPolicy": spec.clean_policy,
        "restartPolicy": spec.restart_policy,
        "backoffLimit": spec.backoff_limit,
        "activeDeadlineSeconds": _whole(spec.running_timeout),
        "ttlSecondsAfterFinished": _whole(spec.ttl_after_finished, least=0),
        "maxWaitSeconds": _whole(spec.max_wait_time),
        "runIn": spec.run_in if spec.run_in != "auto" else None,
        "shell": spec.shell if spec.shell != "sh" else None,
        "sync": _sync(spec),
        "etReplicaSpecs": {
            "launcher": {"replicas": 1, "template": launcher(spec)},
            "worker": {
                "replicas": spec.workers,
                "minReplicas": spec.least,
                "maxReplicas": spec.most,
                "restartPolicy": spec.worker_restart_policy,
                "template": worker(spec),
            },
        },
    }
    metadata = _job_metadata(spec, owner, _annotations(spec, owner))
    return _object(names.API, names.TRAININGJOB, metadata, spec=_known(own))


def _pytorchjob(spec: Spec, owner: str) -> dict[str, Any]:
    run_policy = {
        "cleanPodPolicy": spec.clean_policy,
        "backoffLimit": spec.retry,
        "activeDeadlineSeconds": _whole(spec.running_timeout),
        "ttlSecondsAfterFinished": _whole(spec.ttl_after_finished, least=0),
    }
    own = {
        "runPolicy": _known(run_policy),
        "nprocPerNode": spec.nproc_per_node or None,
        "elasticPolicy": _elastic_policy(spec),
        "pytorchReplicaSpecs": _pytorch_replicas(spec),
    }
    annotations = _annotations(spec, owner)
    if sync := _sync(spec):
        annotations[names.SYNC] = json.dumps(sync)
    metadata = _job_metadata(spec, owner, annotations)
    return _object(names.PYTORCH_API, names.PYTORCHJOB, metadata, spec=_known(own))


def _pytorch_replicas(spec: Spec) -> dict[str, Any]:
    """The master is one of the workers; an elastic job may have none beside it, for now."""
    master = {
        "replicas": 1,
        "restartPolicy": "OnFailure" if spec.retry else "Never",
        "template": trainer(spec),
    }
    if spec.workers == 1 and not spec.elastic:
        return {"Master": master}
    others = {
        "replicas": spec.workers - 1,
        "restartPolicy": "OnFailure",
        "template": trainer(spec),
    }
    return {"Master": master, "Worker": others}


def _elastic_policy(spec: Spec) -> dict[str, Any] | None:
    if not spec.elastic:
        return None
    return {"minReplicas": spec.least, "maxReplicas": spec.most}


def _sync(spec: Spec) -> dict[str, str] | None:
    if spec.sync is None:
        return None
    found = {
        "mode": spec.sync.mode,
        "source": spec.sync.source,
        "branch": spec.sync.branch,
        "revision": spec.sync.revision,
        "image": spec.container.sync_image,
    }
    return filled(found)


# --- what stands above them -----------------------------------------------------------------------


def _annotations(spec: Spec, owner: str) -> dict[str, str]:
    own = spec.container
    said = {
        names.USERNAME: owner,
        f"{_ARENA}/ssh-secret": own.ssh_secret,
        names.SPOT: "true" if spec.spot else "",
        names.MAX_WAIT: str(_whole(spec.max_wait_time) or ""),
        names.SUSPEND: "true" if own.queue else "",
        "modelName": own.model_name,
        "modelSource": own.model_source,
    }
    users = pairs("--annotation", own.annotations)
    return {**users, GPUS_OF_JOB: str(spec.workers * spec.gpus), **filled(said)}


def _job_metadata(spec: Spec, owner: str, annotations: dict[str, str]) -> dict[str, Any]:
    made = _named(spec, spec.name)
    uid = hashlib.md5(owner.encode(), usedforsecurity=False).hexdigest()
    labels = {**made["labels"], **({f"{_ARENA}/uid": uid} if owner else {})}
    return {**made, "labels": labels, "annotations": annotations}


def _named(spec: Spec, name: str) -> dict[str, Any]:
    return {"name": name, **_metadata(spec)}


def _metadata(spec: Spec) -> dict[str, Any]:
    own = {names.MANAGED_BY: names.MANAGER, names.JOB: spec.name}
    return {"namespace": spec.namespace, "labels": {**user_labels(spec), **own}}


def _git_secret(spec: Spec) -> list[dict[str, Any]]:
    keys = dict(zip(LOGIN, ("username", "password"), strict=True))
    login = {key: spec.secrets[name] for name, key in keys.items() if spec.secrets.get(name)}
    if not login:
        return []
    metadata = _named(spec, names.git_secret(spec.name))
    return [_object("v1", "Secret", metadata, type="kubernetes.io/basic-auth", stringData=login)]


# --- small things ---------------------------------------------------------------------------------


def _check(spec: Spec) -> None:
    if not spec.container.image:
        raise UsageError("--image must be set: on a cluster every pod runs an image")
    if not spec.name[0].isalpha():
        raise UsageError(
            f"--name is invalid: on a cluster it must start with a letter, got {spec.name!r}"
        )
    if spec.container.model_name and not spec.container.model_source:
        raise UsageError(
            "model version source must be specified when registering a model version: "
            "give --model-source"
        )


def _with_secrets_apart(spec: Spec) -> Spec:
    """A token alone may stand in the address too: whoever reads a job must not find it there."""
    said = {name: spec.env[name] for name in LOGIN if name in spec.env}
    env = {name: value for name, value in spec.env.items() if name not in said}
    found = _LOGIN.match(spec.sync.source) if spec.sync is not None else None
    if spec.sync is None or found is None:
        return replace(spec, env=env, secrets={**said, **spec.secrets})
    user, _, password = found.group(2).partition(":")
    words = (unquote(user), unquote(password or user))  # a token is asked for as either
    login = dict(zip(LOGIN, words, strict=True))
    sync = replace(spec.sync, source=_LOGIN.sub(r"\1", spec.sync.source))
    return replace(spec, env=env, sync=sync, secrets={**login, **said, **spec.secrets})


def _object(version: str, kind: str, metadata: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _known(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was not said; 0 is something."""
    return {key: value for key, value in found.items() if value is not None}


def _whole(seconds: float | None, least: int = 1) -> int | None:
    """Kubernetes counts whole seconds."""
    return None if seconds is None else max(math.ceil(seconds), least)
