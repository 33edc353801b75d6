"""The checks of Kubernetes' Pod Security Standards, profile "restricted", on a pod's manifest.

What is wrong, in words; nothing for a pod that such a namespace lets in. The profile includes all
of "baseline".
"""

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
PROFILES = ("RuntimeDefault", "Localhost")


def faults(pod: Json) -> list[str]:
    spec = pod["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return [
        *_of_pod(spec),
        *(f"{each['name']} {what}" for each in containers for what in _of_container(each, spec)),
    ]


def _of_pod(spec: Json) -> Iterator[str]:
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield key
    for volume in spec.get("volumes", []):
        if not set(volume) - {"name"} <= VOLUMES:
            yield f"volume {volume['name']}"
    security = spec.get("securityContext", {})
    if security.get("runAsUser") == 0:
        yield "runs as root"
    if security.get("sysctls"):
        yield "sets sysctls"


def _of_container(container: Json, spec: Json) -> Iterator[str]:
    own, pods = container.get("securityContext", {}), spec.get("securityContext", {})
    if own.get("privileged"):
        yield "is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if own.get("runAsNonRoot", pods.get("runAsNonRoot")) is not True:
        yield "is not kept from being root"
    if own.get("runAsUser") == 0:
        yield "runs as root"
    if (own.get("seccompProfile") or pods.get("seccompProfile", {})).get("type") not in PROFILES:
        yield "has no seccomp profile"
    capabilities = own.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield "keeps capabilities"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "adds capabilities"
    if own.get("procMount", "Default") != "Default":
        yield "unmasks /proc"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield "takes a port of the host"
