"""What is mounted in a pod's main container beside the user's own volumes.

Midflight's own: the token, a folder that is the pod's alone, and in the chief the hostfile. For a
root that cannot be written to: /tmp, and a home. Nothing is mounted where the user has something.
"""

from typing import Any

from midflight.kubernetes import names
from midflight.kubernetes.pods.security import USER
from midflight.kubernetes.resources.templates import OWN_VOLUMES

HOME_OF_ROOT = "/root"
TMP, SHM = "/tmp", "/dev/shm"
SHM_SIZE = "2Gi"  # as Arena has it
_TOKEN_MODE, _OPEN_MODE, _SCRIPT_MODE = 0o440, 0o444, 0o555


def add_token(pod: dict[str, Any], secret: str) -> None:
    """Readable by the pod's group; by all in it where it has none."""
    mode = _TOKEN_MODE if "fsGroup" in pod.get("securityContext", {}) else _OPEN_MODE
    volume = {"secret": {"secretName": secret, "defaultMode": mode}}
    _add(pod, "token", volume, names.TOKEN_DIR, read_only=True)


def add_hosts(pod: dict[str, Any], job: str) -> None:
    """As a whole folder: a file mounted alone would never change."""
    volume = {"configMap": {"name": names.config_map(job), "defaultMode": _SCRIPT_MODE}}
    _add(pod, "hosts", volume, names.EDL, read_only=True)


def add_job_folder(pod: dict[str, Any]) -> None:
    _add(pod, "job", {"emptyDir": {}}, names.JOB_DIR)


def add_shared_memory(pod: dict[str, Any]) -> None:
    """Data loaders hand their batches over in it; a container has 64 MB of its own."""
    if not mounted(pod, SHM):
        volume = {"emptyDir": {"medium": "Memory", "sizeLimit": SHM_SIZE}}
        _add(pod, "shm", volume, SHM)


def add_writable(pod: dict[str, Any], *wanted: str) -> None:
    """/tmp and a home for a read-only root; `wanted` are paths the user's program works in.

    Nobody but root gets into root's home, so for anybody else it is an empty folder of their own.
    """
    container = pod["containers"][0]
    inside = any(path == HOME_OF_ROOT or path.startswith(f"{HOME_OF_ROOT}/") for path in wanted)
    if _user(pod) not in (None, 0) and inside and not mounted(pod, HOME_OF_ROOT):
        volume = add_volume(pod, "home", {"emptyDir": {}})
        outer = {"name": volume, "mountPath": HOME_OF_ROOT}  # before what is mounted in it
        container["volumeMounts"] = [outer, *container.get("volumeMounts", ())]
    if not container.get("securityContext", {}).get("readOnlyRootFilesystem"):
        return
    if not mounted(pod, TMP):
        _add(pod, "tmp", {"emptyDir": {}}, TMP)
    _set_home(pod, container)


def _user(pod: dict[str, Any]) -> int | None:
    own = pod["containers"][0].get("securityContext", {})
    found = own.get("runAsUser", pod.get("securityContext", {}).get("runAsUser"))
    return found if isinstance(found, int) else None


def _set_home(pod: dict[str, Any], container: dict[str, Any]) -> None:
    env = container.setdefault("env", [])
    said = next((each for each in env if each["name"] == "HOME"), None)
    if said is not None and ("value" not in said or mounted(pod, said["value"])):
        return
    home = HOME_OF_ROOT if mounted(pod, HOME_OF_ROOT) else TMP
    container["env"] = [
        {"name": "HOME", "value": home},
        *(each for each in env if each is not said),
    ]


def add_user_name(pod: dict[str, Any]) -> None:
    """No image knows our user, and programs that ask for its name (torch does) would fail."""
    env = pod["containers"][0].setdefault("env", [])
    if _user(pod) == USER and all(each["name"] != "USER" for each in env):
        env.insert(0, {"name": "USER", "value": names.MANAGER})


def mounted(pod: dict[str, Any], path: str) -> bool:
    return bool(mounted_at(pod, path))


def mounted_at(pod: dict[str, Any], path: str) -> str:
    """The volume that the main container has at a path; "" if there is none."""
    mounts = pod["containers"][0].get("volumeMounts", ())
    wanted = path.rstrip("/")
    return next((each["name"] for each in mounts if each["mountPath"].rstrip("/") == wanted), "")


def _add(
    pod: dict[str, Any], name: str, source: dict[str, Any], path: str, read_only: bool = False
) -> None:
    add_volume(pod, name, source)
    mount = {"name": f"{OWN_VOLUMES}{name}", "mountPath": path}
    mounts = pod["containers"][0].setdefault("volumeMounts", [])
    mounts.append({**mount, "readOnly": True} if read_only else mount)


def add_volume(pod: dict[str, Any], name: str, source: dict[str, Any]) -> str:
    own = f"{OWN_VOLUMES}{name}"
    pod.setdefault("volumes", []).append({"name": own, **source})
    return own


def mount(pod: dict[str, Any], volume: str, path: str) -> None:
    """In the main container."""
    mounts = pod["containers"][0].setdefault("volumeMounts", [])
    mounts.append({"name": volume, "mountPath": path})
