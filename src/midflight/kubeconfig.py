"""Which Kubernetes cluster, and as whom: what a kubeconfig, or a pod's own service account, says.

Several files are one, as everywhere: what comes first counts. Files are parsed elsewhere, since a
training image need not have a parser for YAML; everything here needs the standard library only.
Nothing is asked of the cluster.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midflight.errors import UsageError

if TYPE_CHECKING:
    import ssl

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


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


def select(merged: Mapping[str, Any], source: str, context: str = "") -> Settings:
    """The named context, or the current one."""
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
            "this is not a pod with a service account (no KUBERNETES_SERVICE_HOST, or nothing in "
            f"{account}); give a kubeconfig with --config, or stay on this machine with "
            "`midflight context use local`"
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


def merge(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {"clusters": {}, "users": {}, "contexts": {}, "current-context": ""}
    for config in configs:
        merged["current-context"] = merged["current-context"] or config.get("current-context") or ""
        for group, inner in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for each in config.get(group) or []:
                merged[group].setdefault(each.get("name"), each.get(inner) or {})
    return merged


def make_absolute(config: dict[str, Any], folder: Path) -> None:
    """Files are named relative to the kubeconfig that names them."""
    for group, inner in (("clusters", "cluster"), ("users", "user")):
        for each in config.get(group) or []:
            values = each.get(inner) or {}
            for key in _FILES:
                if values.get(key):
                    values[key] = str(folder / values[key])


def token(user: Mapping[str, Any]) -> str:
    """Read anew each time, as a service account's changes every hour. OSError, ValueError."""
    own = Path(user["tokenFile"]).read_text("ascii").strip() if user.get("tokenFile") else ""
    return own or str(user.get("token") or "")


def authorization(user: Mapping[str, Any]) -> dict[str, str]:
    """The header for a token; nothing where a certificate says who asks."""
    found = token(user)
    return {"Authorization": f"Bearer {found}"} if found else {}


def tls(settings: Settings) -> "ssl.SSLContext":
    """UsageError if a certificate cannot be used."""
    import ssl
    import tempfile

    cluster, user = settings.cluster, settings.user
    try:
        authority = _decoded(cluster, "certificate-authority")
        context = ssl.create_default_context(
            cafile=cluster.get("certificate-authority") if authority is None else None,
            cadata=authority.decode() if authority is not None else None,
        )
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads keys from files only
            if certificate := _file(user, "client-certificate", folder):
                context.load_cert_chain(certificate, _file(user, "client-key", folder))
    except (OSError, ValueError) as error:
        both = {**cluster, **user}
        named = ", ".join(str(both[name]) for name in _FILES[:3] if both.get(name))
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"wanted readable PEM files in {settings.source}, got {named or 'data'} ({reason})"
        ) from None
    return context


def _decoded(source: Mapping[str, Any], name: str) -> bytes | None:
    data = source.get(f"{name}-data")
    try:
        return base64.b64decode(data, validate=True) if data else None
    except (ValueError, TypeError):
        raise ValueError(f"{name}-data is not base64") from None


def _file(user: Mapping[str, Any], name: str, folder: str) -> str | None:
    data = _decoded(user, name)
    if data is None:
        return user.get(name) or None
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(data)
    return path


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
