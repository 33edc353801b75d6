"""Kubeconfig files, as the verbs and the operator read them, and what lightkube makes of them.

YAML and lightkube are loaded only where they are used, so that a command can find its namespace
without paying for a client library.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midflight.errors import UsageError
from midflight.kubeconfig import ACCOUNT, Settings, in_pod, make_absolute, merge, select

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

__all__ = ["ACCOUNT", "Settings", "contexts", "files", "for_lightkube", "in_pod", "read"]

DEFAULT_NAMESPACE = "default"
_LOGIN_API = "client.authentication.k8s.io/"


def read(paths: Sequence[str], context: str = "") -> Settings:
    """The named context of these files, or the current one."""
    try:
        return select(_merged(paths), os.pathsep.join(paths), context)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        source = os.pathsep.join(paths)
        raise UsageError(f"{source} is no kubeconfig: {error!s:.200}") from None


def for_lightkube(settings: Settings) -> "SingleConfig":
    """Loads lightkube. ValueError if something in the kubeconfig makes no sense."""
    import msgspec
    from lightkube.config.kubeconfig import SingleConfig
    from lightkube.config.models import Cluster, Context, User

    if not settings.server:
        raise ValueError("its cluster has no server")
    try:
        return SingleConfig(
            context_name=settings.context,
            context=Context(cluster=settings.context, namespace=settings.namespace or None),
            cluster=msgspec.convert({**settings.cluster, "server": settings.server}, Cluster),
            user=msgspec.convert(_with_login(settings.user), User),
        )
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _with_login(user: Mapping[str, Any]) -> dict[str, Any]:
    """A program that logs in is told which version is spoken; all versions answer alike."""
    found = dict(user)
    if login := found.get("exec"):
        version = str(login.get("apiVersion", ""))
        told = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = [
            *(login.get("env") or []),
            {"name": "KUBERNETES_EXEC_INFO", "value": json.dumps(told)},
        ]
        if version.startswith(_LOGIN_API):
            version = f"{_LOGIN_API}v1beta1"
        found["exec"] = {**login, "apiVersion": version, "env": env}
    return found


def contexts(paths: Sequence[str]) -> list[str]:
    return list(_merged(paths)["contexts"])


def files(text: str, home: Path) -> list[str]:
    """Of KUBECONFIG's value, or of --config's; where nothing is said, the usual one."""
    return [each for each in text.split(os.pathsep) if each] or [str(home / ".kube" / "config")]


def _merged(paths: Sequence[str]) -> dict[str, Any]:
    return merge([_load(path) for path in _there(paths)])


def _there(paths: Sequence[str]) -> Sequence[str]:
    """One that is missing beside others is passed over, as kubectl does."""
    found = [path for path in paths if Path(path).expanduser().is_file()]
    if not found:
        raise UsageError(
            f"there is no kubeconfig file {os.pathsep.join(paths)}; give one with --config or "
            "KUBECONFIG, or stay on this machine with `midflight context use local`"
        )
    return found


def _load(path: str) -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    file = Path(path).expanduser()
    try:
        found = yaml.load(file.read_bytes(), loader)
    except OSError as error:
        raise UsageError(f"cannot read the kubeconfig {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"the kubeconfig {path} is not YAML: {reason}") from None
    if not isinstance(found, dict):
        raise UsageError(f"the kubeconfig {path} holds no configuration; is it the right file?")
    make_absolute(found, file.absolute().parent)
    return found
