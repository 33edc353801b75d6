"""What a TrainingJob or a PyTorchJob means: the object in, the controller's Spec out.

Only what the controller decides by is read; pods are made of the object's own templates, whatever
the Spec says. A UsageError names the field. What the API server's schema refuses already is refused
here too: an older definition may be installed, and a schema cannot compare two fields.
"""

import json
import re
import shlex
from typing import Any

from midflight.backends.local.code import source_of
from midflight.backends.words import counting_launcher
from midflight.controller.roster import is_elastic
from midflight.controller.spec import LOGIN, Container, Kind, Spec, Sync
from midflight.controller.spec_check import LONGEST_NAME, check
from midflight.controller.state import Role
from midflight.errors import JobFailed, UsageError
from midflight.kubernetes import names
from midflight.kubernetes.resources import devices, fields
from midflight.kubernetes.resources.elastic_policy import torchrun_variables
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import (
    LAUNCHER,
    MOST_WORKERS,
    PYTORCH_MASTER,
    PYTORCH_WORKER,
    WORKER,
    Found,
    check_template,
    chief_role,
    kind_of,
    main_container,
    part,
    plain_env,
    received,
    replicas_of,
    template_of,
)

IMAGE_COMMAND = "(the image's own command)"  # what is shown where the object names none
AGAIN = 6  # restarts where the replicas may be restarted and nobody said how often
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SHELL = re.compile(r"(.*/)?(sh|bash|dash|zsh|ksh|ash)")
_MANY = 1_000_000  # more of anything is a mistake


def spec_of(obj: Object) -> Spec:
    """Raises UsageError if the object makes no sense; nothing else, whatever it looks like."""
    kind = kind_of(obj)
    _check_name(obj)
    for role in (chief_role(obj), Role.WORKER):
        check_template(template_of(obj, role))
    given = {**_shared(obj, kind), **(_of_etjob(obj) if kind is Kind.ETJOB else _of_pytorch(obj))}
    spec = Spec(kind=kind, **given)
    if spec.command == IMAGE_COMMAND and (kind is Kind.ETJOB or spec.elastic):
        container = main_container(template_of(obj, chief_role(obj)))
        raise UsageError(
            f"{container.path}.command is missing: write down what the job runs, "
            "since the image's own command cannot be seen from here"
        )
    try:
        check(spec)
    except UsageError as error:
        raise UsageError(_in_terms_of_fields(str(error), kind)) from None
    _check_source(spec)
    min_available(obj, spec)
    torchrun_variables(obj, spec)  # what it cannot read is refused now, and not with each pod
    return spec


def min_available(obj: Object, spec: Spec, most: int | None = None) -> int:
    """How many workers a drain has to leave; 0 means that it may take all of them.

    A job of fixed size has no worker to spare, and a drain would wait for its end; so has one whose
    bounds are the same. `most`: of jobs without an annotation, where the operator was told.
    """
    annotations = fields.pairs(part(obj, "metadata").value, "annotations", "metadata")
    if (said := annotations.get(names.MIN_AVAILABLE)) is None:
        least = spec.least if is_elastic(spec) and spec.least < spec.most else 0
        return least if most is None else min(least, most)
    if not said.isdecimal() or int(said) > MOST_WORKERS:
        path = fields.join("metadata.annotations", names.MIN_AVAILABLE)
        raise fields.wrong(path, f"a number of workers up to {MOST_WORKERS}", said)
    return int(said)


def _check_name(obj: Object) -> None:
    name = fields.text(part(obj, "metadata").value, "name", "metadata")
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise fields.wrong(
            "metadata.name",
            f"at most {LONGEST_NAME} lower case letters, digits or '-', beginning with a letter "
            "and ending with a letter or digit, since pods and Services are named after it",
            name,
        )


def _check_source(spec: Spec) -> None:
    """Raises UsageError for a source that no folder can be named after, and the like."""
    if spec.sync is None:
        return
    if spec.sync.revision.startswith("-"):  # git would take it for an option
        raise UsageError(f"the revision to fetch starts with '-': {spec.sync.revision}")
    if any("\0" in text for text in (spec.sync.source, spec.sync.branch, spec.sync.revision)):
        raise UsageError("what to fetch is invalid: it holds a zero byte")
    try:
        if spec.sync.mode == "git":
            assert source_of(spec).repository
    except JobFailed as error:
        raise UsageError(str(error)) from None


# --- what both kinds have ---------------------------------------------------------------------


def _shared(obj: Object, kind: Kind) -> dict[str, Any]:
    meta, spec = part(obj, "metadata").value, part(obj, "spec").value
    annotations = fields.pairs(meta, "annotations", "metadata")
    template = template_of(obj, chief_role(obj))
    container = main_container(template)
    ours = spec if kind is Kind.ETJOB else {}
    env = plain_env(container)
    sync, sync_image = _sync(ours, annotations)
    words = words_of(container)
    shell = fields.text(ours, "shell", "spec") or annotations.get(names.SHELL) or "sh"
    return {
        "name": meta["name"],
        "namespace": fields.text(meta, "namespace", "metadata", "default"),
        "labels": fields.pairs(meta, "labels", "metadata"),
        "command": command_text(words),
        "shell": words[0] if is_shell_text(words) else shell,
        "run_in": fields.text(ours, "runIn", "spec") or annotations.get(names.RUN_IN) or "auto",
        "working_dir": fields.text(container.value, "workingDir", container.path),
        "env": {name: value for name, value in env.items() if name not in LOGIN},
        "secrets": {name: env[name] for name in LOGIN if name in env},
        "gpus": _gpus(obj, ours),
        "sync": sync,
        "max_wait_time": _max_wait(ours, annotations),
        "spot": annotations.get(names.SPOT) == "true",
        "container": Container(
            image=fields.text(container.value, "image", container.path),
            priority=fields.text(part(template.value, "spec").value, "priorityClassName", ""),
            sync_image=sync_image,
        ),
    }


def words_of(container: Found) -> tuple[str, ...]:
    """Command and arguments; nothing if the image's own command is run."""
    command = fields.texts(container.value, "command", container.path)
    return command + fields.texts(container.value, "args", container.path) if command else ()


def is_shell_text(words: tuple[str, ...]) -> bool:
    return len(words) == 3 and words[1] == "-c" and _SHELL.fullmatch(words[0]) is not None


def command_text(words: tuple[str, ...]) -> str:
    """As the container gets it."""
    found = tuple(received(word) for word in words)
    if is_shell_text(found):
        return found[2]
    return shlex.join(found) if found else IMAGE_COMMAND


def _gpus(obj: Object, spec: Object) -> int:
    slots = _count(spec, "slotsPerWorker", "spec")
    if slots:
        return slots
    container = main_container(template_of(obj, Role.WORKER))
    resources = fields.mapping(container.value, "resources", container.path)
    limits = fields.mapping(resources, "limits", f"{container.path}.resources")
    return devices.slots(limits, f"{container.path}.resources.limits")


def _max_wait(spec: Object, annotations: dict[str, str]) -> float | None:
    """0 means no bound, as with --max-wait-time."""
    if (seconds := _count(spec, "maxWaitSeconds", "spec")) is not None:
        return float(seconds) or None
    text = annotations.get(names.MAX_WAIT, "")
    if text and not re.fullmatch(r"\d{1,12}", text):
        path = fields.join("metadata.annotations", names.MAX_WAIT)
        raise fields.wrong(path, "a number of seconds", text)
    return (float(text) or None) if text else None


def _sync(spec: Object, annotations: dict[str, str]) -> tuple[Sync | None, str]:
    """What to fetch, and the image that fetches it."""
    found, path = fields.mapping(spec, "sync", "spec"), "spec.sync"
    if not found and annotations.get(names.SYNC):
        path = fields.join("metadata.annotations", names.SYNC)
        try:
            found = json.loads(annotations[names.SYNC])
        except ValueError:
            raise fields.wrong(path, "JSON", annotations[names.SYNC]) from None
        if not isinstance(found, dict):
            raise fields.wrong(path, "a JSON object", annotations[names.SYNC])
    if not found:
        return None, ""
    mode, source, branch, revision, image = (
        fields.text(found, key, path) for key in ("mode", "source", "branch", "revision", "image")
    )
    return Sync(mode, source, branch, revision), image


def _count(holder: Object, key: str, path: str, default: int | None = None) -> int | None:
    value = fields.whole(holder, key, path, default)
    if value is not None and not -_MANY < value < _MANY:
        raise fields.wrong(fields.join(path, key), f"less than {_MANY}", value)
    return value


def _seconds(holder: Object, key: str, path: str) -> float | None:
    value = fields.whole(holder, key, path)
    if value is not None and not 0 <= value < 2**40:
        raise fields.wrong(fields.join(path, key), "0 or more seconds", value)
    return None if value is None else float(value)


# --- each kind --------------------------------------------------------------------------------


def _of_etjob(obj: Object) -> dict[str, Any]:
    spec, worker, launcher = part(obj, "spec").value, part(obj, WORKER).value, part(obj, LAUNCHER)
    if _count(launcher.value, "replicas", LAUNCHER, 1) != 1:
        raise fields.wrong(f"{LAUNCHER}.replicas", "1", launcher.value["replicas"])
    return {
        "workers": _workers(_count(worker, "replicas", WORKER, 1), WORKER),
        "min_workers": _count(worker, "minReplicas", WORKER, 1),
        "max_workers": _most(worker, WORKER),
        "restart_policy": fields.text(spec, "restartPolicy", "spec") or "Never",
        "worker_restart_policy": fields.text(worker, "restartPolicy", WORKER) or "Always",
        "backoff_limit": _count(spec, "backoffLimit", "spec", 6),
        "clean_policy": fields.text(spec, "cleanPodPolicy", "spec") or "Running",
        "running_timeout": _seconds(spec, "activeDeadlineSeconds", "spec") or None,
        "ttl_after_finished": _seconds(spec, "ttlSecondsAfterFinished", "spec"),
    }


def _of_pytorch(obj: Object) -> dict[str, Any]:
    policy, path = part(obj, "spec.runPolicy")
    return {
        "workers": _pytorch_workers(obj),
        **_pytorch_bounds(obj),
        "worker_restart_policy": _restart_policy(obj, Role.WORKER) or "Always",
        "retry": _retry(obj),
        "nproc_per_node": _processes(obj),
        "clean_policy": fields.text(policy, "cleanPodPolicy", path) or "None",
        "running_timeout": _seconds(policy, "activeDeadlineSeconds", path) or None,
        "ttl_after_finished": _seconds(policy, "ttlSecondsAfterFinished", path),
    }


def _pytorch_workers(obj: Object) -> int:
    """All of them: the master is one. Without replicas of the one kind, there are none of it."""
    found = 0
    for path in (PYTORCH_MASTER, PYTORCH_WORKER):
        if replicas := part(obj, path).value:
            number = _count(replicas, "replicas", path, 1) or 0
            if path == PYTORCH_MASTER and number != 1:
                raise fields.wrong(f"{path}.replicas", "1", number)
            if number < 0:
                raise fields.wrong(f"{path}.replicas", "0 or more", number)
            found += _workers(number, path)
    return found


def _most(holder: Object, path: str) -> int:
    """A larger number means that there is no bound of its own."""
    return min(_count(holder, "maxReplicas", path, MOST_WORKERS) or 0, MOST_WORKERS)


def _workers(number: int | None, path: str) -> int:
    if number is None or number > MOST_WORKERS:
        raise fields.wrong(f"{path}.replicas", f"at most {MOST_WORKERS}", number)
    return number


def _pytorch_bounds(obj: Object) -> dict[str, int | None]:
    """Of elastic jobs. They count nodes, so the master is among them."""
    if part(obj, "spec").value.get("elasticPolicy") is None or launcher_of_fixed_size(obj):
        return {}
    policy, path = part(obj, "spec.elasticPolicy")
    return {
        "min_workers": _count(policy, "minReplicas", path, 1),
        "max_workers": _most(policy, path),
    }


def launcher_of_fixed_size(obj: Object) -> str:
    """Why a PyTorchJob with an elasticPolicy is not elastic; "" if it is, or has no policy."""
    if part(obj, "spec").value.get("elasticPolicy") is None:
        return ""
    annotations = fields.pairs(part(obj, "metadata").value, "annotations", "metadata")
    command = command_text(words_of(main_container(template_of(obj, chief_role(obj)))))
    return counting_launcher(command, annotations.get(names.RUN_IN) or "auto")


def _restart_policy(obj: Object, role: Role) -> str:
    replicas = replicas_of(obj, role)
    return fields.text(replicas.value, "restartPolicy", replicas.path)


def _retry(obj: Object) -> int:
    policy, path = part(obj, "spec.runPolicy")
    if (limit := _count(policy, "backoffLimit", path)) is not None:
        return limit
    again = {_restart_policy(obj, role) for role in (Role.MASTER, Role.WORKER)}
    return AGAIN if again & {"OnFailure", "Always", "ExitCode"} else 0


def _processes(obj: Object) -> str:
    """Of each node: spec.nprocPerNode, or what the environment says."""
    spec = part(obj, "spec").value
    policy, path = part(obj, "spec.elasticPolicy")
    if (older := _count(policy, "nProcPerNode", path)) is not None:
        return str(older)
    container = main_container(template_of(obj, Role.MASTER))
    said = fields.text(spec, "nprocPerNode", "spec")
    return said or plain_env(container).get("PET_NPROC_PER_NODE", "")


# --- where a flag's value stands in an object ---------------------------------------------------

_FLAG = re.compile(r"--[a-zA-Z-]*[a-zA-Z]|cleanTaskPolicy")


def _in_terms_of_fields(message: str, kind: Kind) -> str:
    """`controller.checking` names flags; whoever wrote a manifest never saw one."""
    return _FLAG.sub(lambda flag: _PATHS[kind].get(flag[0], flag[0]), message)


_SHARED_PATHS = {
    "--name": "metadata.name",
    "--label": "metadata.labels",
    "--run-in": f'metadata.annotations["{names.RUN_IN}"]',
    "--max-wait-time": f'metadata.annotations["{names.MAX_WAIT}"]',
    "--syncSource": f'metadata.annotations["{names.SYNC}"].source',
    "--sync-mode": f'metadata.annotations["{names.SYNC}"].mode',
    "--env": "env of the first container",
}
_PATHS = {
    Kind.ETJOB: _SHARED_PATHS
    | {
        "--workers": f"{WORKER}.replicas",
        "--min-workers": f"{WORKER}.minReplicas",
        "--max-workers": f"{WORKER}.maxReplicas",
        "--worker-restart-policy": f"{WORKER}.restartPolicy",
        "--gpus": "spec.slotsPerWorker",
        "--job-restart-policy": "spec.restartPolicy",
        "--job-backoff-limit": "spec.backoffLimit",
        "cleanTaskPolicy": "spec.cleanPodPolicy",
        "--running-timeout": "spec.activeDeadlineSeconds",
        "--ttl-after-finished": "spec.ttlSecondsAfterFinished",
        "--max-wait-time": "spec.maxWaitSeconds",
        "--run-in": "spec.runIn",
        "--syncSource": "spec.sync.source",
        "--sync-mode": "spec.sync.mode",
    },
    Kind.PYTORCHJOB: _SHARED_PATHS
    | {
        "--workers": "spec.pytorchReplicaSpecs",
        "--min-workers": "spec.elasticPolicy.minReplicas",
        "--max-workers": "spec.elasticPolicy.maxReplicas",
        "--worker-restart-policy": f"{PYTORCH_WORKER}.restartPolicy",
        "--nproc-per-node": "spec.nprocPerNode",
        "--retry": "spec.runPolicy.backoffLimit",
        "cleanTaskPolicy": "spec.runPolicy.cleanPodPolicy",
        "--running-timeout": "spec.runPolicy.activeDeadlineSeconds",
        "--ttl-after-finished": "spec.runPolicy.ttlSecondsAfterFinished",
    },
}
