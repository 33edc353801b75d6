"""What a pod may do: the published "restricted" profile, and a root that cannot be written to.

What a template says itself is kept, and `notes` names it where it goes beyond that profile. Of
images from before, which run as root and write where they like, `baseline` leaves the user and the
file system alone; nothing gains privileges on the way and the usual system calls are filtered.
`as-written` adds nothing. An annotation of the job wins over what the operator was told.
"""

from collections.abc import Callable
from typing import Any

from midflight.controller.state import Role
from midflight.kubernetes import names
from midflight.kubernetes.pods import AS_WRITTEN, BASELINE
from midflight.kubernetes.resources import fields
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import chief_role, part, template_of, thaw

SECURITY = f"{names.OURS}/security"  # annotation of a job: one of SECURITIES, or
AS_THE_IMAGE = "image"  # another word for baseline
USER = 65532  # nobody's on any node; the group that owns volumes as well
_HARMLESS = ("NET_BIND_SERVICE",)
_HOST = ("hostNetwork", "hostPID", "hostIPC")


def security_of(obj: Object, default: str = "") -> str:
    """`default`: the operator's; an annotation of the job wins."""
    annotations = fields.pairs(part(obj, "metadata").value, "annotations", "metadata")
    said = annotations.get(SECURITY, default)
    return BASELINE if said == AS_THE_IMAGE else said


def secure(pod: dict[str, Any], level: str) -> None:
    """`pod` is a pod's spec, and is changed; the first container is the one that trains."""
    if level == AS_WRITTEN:
        return
    old_image = level == BASELINE
    security = pod.setdefault("securityContext", {})
    security.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    main = pod["containers"][0].setdefault("securityContext", {})
    if not old_image:
        _not_root(security, main)
        if not main.get("privileged"):
            main.setdefault("readOnlyRootFilesystem", True)
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        _confine(container.setdefault("securityContext", {}), old_image)


def _not_root(pod: dict[str, Any], main: dict[str, Any]) -> None:
    if "runAsUser" not in pod and "runAsUser" not in main:
        pod["runAsUser"] = USER
        if "fsGroup" not in pod:
            pod["fsGroup"] = USER
            pod.setdefault("fsGroupChangePolicy", "OnRootMismatch")  # a large claim is quick, too
    if main.get("runAsUser", pod.get("runAsUser")) != 0:
        pod.setdefault("runAsNonRoot", True)


def _confine(security: dict[str, Any], old_image: bool) -> None:
    capabilities = security.get("capabilities", {})
    # Kubernetes refuses a container that asks for both.
    if not security.get("privileged") and not _is_admin(capabilities.get("add", ())):
        security.setdefault("allowPrivilegeEscalation", False)
    if not old_image and not security.get("privileged"):
        dropped = [name for name in capabilities.get("drop", ()) if name.upper() != "ALL"]
        security["capabilities"] = {**capabilities, "drop": ["ALL", *dropped]}


def _is_admin(added: Any) -> bool:
    return any(name.upper().removeprefix("CAP_") in ("SYS_ADMIN", "ALL") for name in added)


def confined() -> dict[str, Any]:
    """The security context of a container of our own."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def notes(obj: Object) -> list[str]:
    """What keeps a job's pods from the restricted profile, in words for its Events."""
    found = []
    if security_of(obj) in (BASELINE, AS_WRITTEN):
        found.append(f"pods run as their image says: the annotation {SECURITY} asks for it")
    for role in dict.fromkeys((chief_role(obj), Role.WORKER)):
        template = thaw(template_of(obj, role).value)
        annotations = template.get("metadata", {}).get("annotations", {})
        said = _beyond(template.get("spec", {}), annotations)
        found.extend(f"{role.value} pods {what}: their template says so" for what in said)
    return found


def _beyond(spec: dict[str, Any], annotations: dict[str, Any]) -> list[str]:
    containers = [*spec.get("initContainers", ()), *spec.get("containers", ())]
    contexts = [spec.get("securityContext", {})]
    contexts += [each.get("securityContext", {}) for each in containers]
    added = [name for each in contexts for name in each.get("capabilities", {}).get("add", ())]
    ports = [port for each in containers for port in each.get("ports", ()) if port.get("hostPort")]
    kinds = {key for volume in spec.get("volumes", ()) for key in volume if key != "name"}
    return [
        *(f"have {key}" for key in _HOST if spec.get(key)),
        *(f"add the capability {name}" for name in dict.fromkeys(added) if name not in _HARMLESS),
        *(text for text, holds in _CONTEXTS.items() if any(map(holds, contexts))),
        *(f"take the port {port['hostPort']} of their node" for port in ports),
        *(f"set the sysctl {each.get('name')}" for each in contexts[0].get("sysctls", ())),
        *(["run without AppArmor"] if _without_apparmor(contexts, annotations) else []),
        *_tokens(spec),
        *(["mount folders of their node"] if "hostPath" in kinds else []),
        *(f"mount a volume of the kind {kind}" for kind in sorted(kinds - _VOLUMES)),
    ]


def _tokens(spec: dict[str, Any]) -> list[str]:
    """With what they may speak to the API server."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    sources = [
        source
        for volume in spec.get("volumes", ())
        for source in volume.get("projected", {}).get("sources", ())
    ]
    return [
        *([f"run as the ServiceAccount {account}"] if account else []),
        *(["have its token"] if spec.get("automountServiceAccountToken") is True else []),
        *(["mount a ServiceAccount's token"] if _has_token(sources) else []),
    ]


def _has_token(sources: list[dict[str, Any]]) -> bool:
    return any("serviceAccountToken" in source for source in sources)


def _profile(context: dict[str, Any], key: str) -> str:
    return str(context.get(key, {}).get("type", ""))


def _without_apparmor(contexts: list[dict[str, Any]], annotations: dict[str, Any]) -> bool:
    older = (value for name, value in annotations.items() if name.startswith(_APPARMOR))
    said = (_profile(each, "appArmorProfile") == "Unconfined" for each in contexts)
    return "unconfined" in older or any(said)


def _selinux(context: dict[str, Any]) -> str:
    return str(context.get("seLinuxOptions", {}).get("type", ""))


_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
# What the restricted profile lets a pod mount; hostPath has words of its own.
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath"} | {
    *("persistentVolumeClaim", "projected", "secret")
}
_CONTEXTS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "run as root": lambda each: each.get("runAsUser") == 0,
    "may run as root": lambda each: each.get("runAsNonRoot") is False,
    "are privileged": lambda each: bool(each.get("privileged")),
    "may gain privileges": lambda each: each.get("allowPrivilegeEscalation") is True,
    "run without seccomp": lambda each: _profile(each, "seccompProfile") == "Unconfined",
    "see all of /proc": lambda each: each.get("procMount", "Default") != "Default",
    "choose an SELinux user or role": lambda each: bool(
        {"user", "role"} & each.get("seLinuxOptions", {}).keys()
    ),
    "choose an SELinux type": lambda each: _selinux(each) not in _SELINUX_TYPES,
    "are processes of their Windows node": lambda each: bool(
        each.get("windowsOptions", {}).get("hostProcess")
    ),
}
