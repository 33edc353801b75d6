"""Which pod template an instance is made of, and whether a template is one that can be used.

The schema leaves templates open, as that of a Deployment in a custom resource would have to, so
everything that rendering touches is looked at here, once, before anything is made of the object.
What only Kubernetes cares about is left for it to judge.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from midflight.controller.spec import Kind
from midflight.controller.state import Role
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.resources import fields
from midflight.kubernetes.resources.fields import Object, join

LAUNCHER, WORKER = "spec.etReplicaSpecs.launcher", "spec.etReplicaSpecs.worker"
PYTORCH_MASTER, PYTORCH_WORKER = (
    "spec.pytorchReplicaSpecs.Master",
    "spec.pytorchReplicaSpecs.Worker",
)
MOST_WORKERS = 1000  # of a job: its state has to fit in the object's status
LONGEST_WORD = 128 * 1024 - 1  # bytes: Linux starts no program with a longer one
LARGEST_TEMPLATE = 256 * 1024  # bytes as JSON: a pod is made of it for each worker
TOO_LARGE = "midflight.too-large"  # key of the size of a template that is not kept
OWN_VOLUMES = "midflight-"  # how the names of our own begin
_OWN_PATHS = (names.EDL, names.TOKEN_DIR, names.JOB_DIR, names.RUNTIME_DIR)
_OWN_CONTAINERS = ("midflight", "midflight-code")


class Found(NamedTuple):
    """A part of an object, and where it was."""

    value: Object
    path: str


def kind_of(obj: Object) -> Kind:
    kind = obj.get("kind")
    if kind == names.TRAININGJOB:
        return Kind.ETJOB
    if kind == names.PYTORCHJOB:
        return Kind.PYTORCHJOB
    raise fields.wrong("kind", f"{names.TRAININGJOB} or {names.PYTORCHJOB}", kind)


def part(obj: Object, path: str) -> Found:
    """The object at a path of plain names; {} if it is not there."""
    found, so_far = obj, ""
    for key in path.split("."):
        found, so_far = fields.mapping(found, key, so_far), join(so_far, key)
    return Found(found, so_far)


def replicas_of(obj: Object, role: Role) -> Found:
    """A PyTorchJob may have one of the two only: its master is a worker as well."""
    if kind_of(obj) is Kind.ETJOB:
        return part(obj, WORKER if role is Role.WORKER else LAUNCHER)
    master, worker = part(obj, PYTORCH_MASTER), part(obj, PYTORCH_WORKER)
    own, other = (worker, master) if role is Role.WORKER else (master, worker)
    return own if own.value or not other.value else other


def template_of(obj: Object, role: Role) -> Found:
    replicas = replicas_of(obj, role)
    return Found(
        fields.mapping(replicas.value, "template", replicas.path), f"{replicas.path}.template"
    )


def chief_role(obj: Object) -> Role:
    return Role.LAUNCHER if kind_of(obj) is Kind.ETJOB else Role.MASTER


def main_container(template: Found) -> Found:
    """The first one; the others are the user's own helpers."""
    path = f"{template.path}.spec"
    containers = fields.objects(
        fields.mapping(template.value, "spec", template.path), "containers", path
    )
    if not containers:
        raise UsageError(f"{path}.containers is empty: wanted at least one container")
    return Found(containers[0], f"{path}.containers[0]")


def plain_env(container: Found) -> dict[str, str]:
    """The variables whose values stand in the object itself, as the container gets them."""
    found = fields.objects(container.value, "env", container.path)
    path = f"{container.path}.env"
    return {
        str(item["name"]): received(fields.text(item, "value", f"{path}[{number}]"))
        for number, item in enumerate(found)
        if item.get("valueFrom") is None
    }


def received(text: str) -> str:
    """Of a word or a value, where nothing is referred to: Kubernetes makes one $ of two."""
    return text.replace("$$", "$")


# --- whether it can be used -----------------------------------------------------------------------


def check_template(template: Found) -> None:
    """Raises UsageError for the first thing that rendering could not deal with."""
    if (size := _size(template.value)) > LARGEST_TEMPLATE:
        text = f"wanted at most {LARGEST_TEMPLATE} bytes, got {size}"
        raise UsageError(
            f"{template.path} is too large: {text}; mount a ConfigMap for what is long"
        )
    main_container(template)
    meta = fields.mapping(template.value, "metadata", template.path)
    for key in ("labels", "annotations"):
        fields.pairs(meta, key, f"{template.path}.metadata")
    spec, path = fields.mapping(template.value, "spec", template.path), f"{template.path}.spec"
    _check_pod(spec, path)
    seen: set[str] = set()
    for container in _containers(spec, path):
        name = fields.text(container.value, "name", container.path)
        if name in seen:
            raise UsageError(f"{container.path}.name is invalid: {name!r} is there twice")
        if name in _OWN_CONTAINERS:
            raise UsageError(f"{container.path}.name is invalid: {name!r} is Midflight's own")
        seen.add(name)
        _check_container(container)


def _size(template: Object) -> int:
    """Of one that the operator has not kept, as it was."""
    said = template.get(TOO_LARGE)
    return said if isinstance(said, int) else len(json.dumps(template))


def _containers(spec: Object, path: str) -> Iterator[Found]:
    for key in ("initContainers", "containers"):
        for number, container in enumerate(fields.objects(spec, key, path)):
            yield Found(container, f"{path}.{key}[{number}]")


def _check_pod(spec: Object, path: str) -> None:
    for key in ("automountServiceAccountToken", "hostNetwork", "hostPID", "hostIPC"):
        fields.truth(spec, key, path)
    for key in ("serviceAccountName", "dnsPolicy", "priorityClassName"):
        fields.text(spec, key, path)
    if (fields.whole(spec, "terminationGracePeriodSeconds", path) or 0) < 0:
        raise fields.wrong(f"{path}.terminationGracePeriodSeconds", "0 or more seconds", -1)
    _check_user(spec, path)
    for number, volume in enumerate(fields.objects(spec, "volumes", path)):
        at = f"{path}.volumes[{number}]"
        name = fields.text(volume, "name", at)
        if name.startswith(OWN_VOLUMES):
            raise UsageError(f"{at}.name is invalid: {OWN_VOLUMES}* are Midflight's own")


def _check_container(container: Found) -> None:
    value, path = container
    if not fields.text(value, "name", path):
        raise UsageError(f"{path}.name is missing")
    if not fields.text(value, "image", path):
        raise UsageError(f"{path}.image is missing: every container runs an image")
    if (folder := fields.text(value, "workingDir", path)) and not folder.startswith("/"):
        raise fields.wrong(f"{path}.workingDir", "an absolute path", folder)
    for key in ("command", "args"):
        _check_words(value, key, path)
    for number, variable in enumerate(fields.objects(value, "env", path)):
        _check_variable(variable, f"{path}.env[{number}]")
    for number, mount in enumerate(fields.objects(value, "volumeMounts", path)):
        _check_mount(mount, f"{path}.volumeMounts[{number}]")
    for number, port in enumerate(fields.objects(value, "ports", path)):
        fields.text(port, "name", f"{path}.ports[{number}]")
        fields.whole(port, "containerPort", f"{path}.ports[{number}]")
    resources = fields.mapping(value, "resources", path)
    for key in ("limits", "requests"):
        fields.mapping(resources, key, f"{path}.resources")
    _check_user(value, path)


def _check_words(container: Object, key: str, path: str) -> None:
    for number, word in enumerate(fields.texts(container, key, path)):
        if len(word.encode()) > LONGEST_WORD:
            at = f"{path}.{key}[{number}]"
            raise UsageError(f"{at} is too long: Linux takes at most {LONGEST_WORD} bytes")


def _check_variable(variable: Object, path: str) -> None:
    if not fields.text(variable, "name", path):
        raise UsageError(f"{path}.name is missing")
    fields.text(variable, "value", path)
    fields.mapping(variable, "valueFrom", path)


def _check_mount(mount: Object, path: str) -> None:
    for key in ("name", "mountPath"):
        if not fields.text(mount, key, path):
            raise UsageError(f"{path}.{key} is missing")
    where = mount["mountPath"].rstrip("/")
    if where in _OWN_PATHS:
        raise UsageError(f"{path}.mountPath is invalid: {where} is Midflight's own")


def _check_user(holder: Object, path: str) -> None:
    """A securityContext, of a pod or of a container."""
    security, at = fields.mapping(holder, "securityContext", path), f"{path}.securityContext"
    for key in ("runAsUser", "runAsGroup", "fsGroup"):
        fields.whole(security, key, at)
    for key in ("runAsNonRoot", "privileged", "readOnlyRootFilesystem"):
        fields.truth(security, key, at)
    fields.truth(security, "allowPrivilegeEscalation", at)
    fields.mapping(security, "seccompProfile", at)
    capabilities = fields.mapping(security, "capabilities", at)
    for key in ("add", "drop"):
        fields.texts(capabilities, key, f"{at}.capabilities")


def template_mark(obj: Object, role: Role) -> str:
    """Two templates with the same mark are the same."""
    text = json.dumps(template_of(obj, role).value, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def thaw(value: Any) -> Any:
    """A deep copy made of plain dictionaries and lists, without fields that are null."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in value]
    return value
