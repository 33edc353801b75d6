"""Which cluster, and as whom: what a kubeconfig, or a pod's own service account, says.

Several files are one, as everywhere: what comes first counts. Nothing is asked of the cluster here,
and no client library is loaded, so that a command can find its namespace without paying for one.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midflight.errors import UsageError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_LOGIN_API = "client.authentication.k8s.io/"
_NO_CLUSTER = "or stay on this machine with `midflight context use local`"


@dataclass(frozen=True)
class Settings:
    """One cluster, one user; `cluster` and `user` are the kubeconfig's own mappings."""

    server: str
    context: str  # "" in a pod
    source: str  # where all this stands, for people
    user_name: str = ""
    namespace: str = ""  # "": nothing was said
    cluster: Mapping[str, Any] = field(default_factory=dict, repr=False)
    user: Mapping[str, Any] = field(default_factory=dict, repr=False)


def read(paths: Sequence[str], context: str = "") -> Settings:
    """The named context of these files, or the current one."""
    merged = _merged([_load(path) for path in _there(paths)])
    source = os.pathsep.join(paths)
    contexts = merged["contexts"]
    chosen = context or merged["current-context"]
    there = ", ".join(contexts) or "none"
    if not chosen:
        raise UsageError(
            f"{source} has no current context; choose one with "
            f"`midflight context use kubernetes:NAME` (there are: {there})"
        )
    if chosen not in contexts:
        raise UsageError(f"{source} has no context {chosen!r}; there are: {there}")
    found = contexts[chosen]
    cluster = _named(merged, "clusters", found.get("cluster"), chosen, source)
    user = _named(merged, "users", found.get("user"), chosen, source)
    return Settings(
        server=str(cluster.get("server") or ""),
        context=chosen,
        source=source,
        user_name=str(found.get("user") or ""),
        namespace=str(found.get("namespace") or ""),
        cluster=cluster,
        user=user,
    )


def in_pod(environ: Mapping[str, str], account: Path = ACCOUNT) -> Settings:
    """The cluster that this process is a part of."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token = account / "token"
    if not host or not port or not token.is_file():
        raise UsageError(
            "this is no pod with a service account (no KUBERNETES_SERVICE_HOST, or nothing in "
            f"{account}); give a kubeconfig with --config, {_NO_CLUSTER}"
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    space = account / "namespace"
    return Settings(
        server=server,
        context="",
        source="the pod's service account",
        namespace=space.read_text().strip() if space.is_file() else "",
        cluster={"server": server, "certificate-authority": str(account / "ca.crt")},
        user={"tokenFile": str(token)},
    )


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
    return list(_merged([_load(path) for path in _there(paths)])["contexts"])


def files(text: str, home: Path) -> list[str]:
    """Of KUBECONFIG's value, or of --config's; where nothing is said, the usual one."""
    return [each for each in text.split(os.pathsep) if each] or [str(home / ".kube" / "config")]


def _there(paths: Sequence[str]) -> Sequence[str]:
    """One that is missing beside others is passed over, as kubectl does."""
    found = [path for path in paths if Path(path).expanduser().is_file()]
    if not found:
        raise UsageError(
            f"there is no kubeconfig file {os.pathsep.join(paths)}; give one with --config or "
            f"KUBECONFIG, {_NO_CLUSTER}"
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
        raise UsageError(f"the kubeconfig {path} is no YAML: {reason}") from None
    if not isinstance(found, dict):
        raise UsageError(f"the kubeconfig {path} holds no configuration; is it the right file?")
    _make_absolute(found, file.absolute().parent)
    return found


def _make_absolute(config: dict[str, Any], folder: Path) -> None:
    """Files are named relative to the kubeconfig that names them."""
    for group, inner in (("clusters", "cluster"), ("users", "user")):
        for each in config.get(group) or []:
            values = each.get(inner) or {}
            for key in _FILES:
                if values.get(key):
                    values[key] = str(folder / values[key])


def _merged(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for config in configs:
        merged["current-context"] = merged["current-context"] or config.get("current-context") or ""
        for group, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for each in config.get(group) or []:
                merged[group].setdefault(each.get("name"), each.get(inner) or {})
    return merged


def _named(
    merged: Mapping[str, Any], group: str, name: object, context: str, source: str
) -> Mapping[str, Any]:
    if group == "users" and not name:
        return {}  # nobody in particular
    if name not in merged[group]:
        raise UsageError(
            f"the context {context!r} of {source} wants {group[:-1]} {name!r}, which is not there"
        )
    found: Mapping[str, Any] = merged[group][name]
    return found
