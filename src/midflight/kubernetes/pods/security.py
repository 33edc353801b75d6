"""What a pod may do: the published "restricted" profile, and a root that cannot be written to.

What a template says itself is kept, and `notes` names it where it goes beyond that profile. Images
from before, which run as root and write where they like, are left as they are by an annotation of
the job; even then nothing gains privileges on the way and the usual system calls are filtered.
"""

from typing import Any

from midflight.controller.state import Role
from midflight.kubernetes import names
from midflight.kubernetes.resources import fields
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.templates import chief_role, part, template_of, thaw

SECURITY = f"{names.OURS}/security"  # annotation of a job
AS_THE_IMAGE = "image"  # its value for old images
USER = 65532  # nobody's on any node; the group that owns volumes as well
_HARMLESS = ("NET_BIND_SERVICE",)
_HOST = ("hostNetwork", "hostPID", "hostIPC")


def as_the_image(obj: Object) -> bool:
    annotations = fields.pairs(part(obj, "metadata").value, "annotations", "metadata")
    return annotations.get(SECURITY) == AS_THE_IMAGE


def secure(pod: dict[str, Any], old_image: bool) -> None:
    """`pod` is a pod's spec, and is changed; the first container is the one that trains."""
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
    if as_the_image(obj):
        found.append(f"pods run as their image says: the annotation {SECURITY} asks for it")
    for role in dict.fromkeys((chief_role(obj), Role.WORKER)):
        template = thaw(template_of(obj, role).value).get("spec", {})
        found.extend(
            f"{role.value} pods {what}: their template says so" for what in _beyond(template)
        )
    return found


def _beyond(spec: dict[str, Any]) -> list[str]:
    contexts = [spec.get("securityContext", {})]
    contexts += [each.get("securityContext", {}) for each in spec.get("containers", ())]
    added = [name for each in contexts for name in each.get("capabilities", {}).get("add", ())]
    found = [f"have {key}" for key in _HOST if spec.get(key)]
    found += [f"add the capability {name}" for name in added if name not in _HARMLESS]
    if any(each.get("runAsUser") == 0 for each in contexts):
        found.append("run as root")
    if any(each.get("privileged") for each in contexts):
        found.append("are privileged")
    if any("hostPath" in volume for volume in spec.get("volumes", ())):
        found.append("mount folders of their node")
    return found
