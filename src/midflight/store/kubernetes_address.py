"""Where a store on Kubernetes is: one ConfigMap, and how its API server is reached.

    kubernetes://NAMESPACE/NAME                     in a pod, as its service account
    kubernetes://NAMESPACE/NAME?kubeconfig=FILE     elsewhere, with FILE's current context

A kubeconfig is read as JSON, because a training image need not have a parser for YAML. Of the ways
to log in, tokens and client certificates are understood; those that call another program are
refused. The service account's token is read anew for each request, as it changes every hour.
"""

import json
import os
import re
import tempfile
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from midflight.errors import StoreError, UsageError
from midflight.store.etcd_address import Endpoint, EtcdAddress, TlsFiles
from midflight.store.etcd_connections import Connections

WANTED = "kubernetes://NAMESPACE/NAME[?kubeconfig=FILE]"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_OTHER_LOGINS = ("exec", "auth-provider", "username")
_UNCHECKED = "insecure-skip-tls-verify"

Json = dict[str, Any]
Pem = str | bytes | None  # a file's path, or what such a file would hold


@dataclass(frozen=True)
class Login:
    """Who asks; at most one of them is set, or none when a certificate says it."""

    token: str | None = field(default=None, repr=False)
    token_file: str | None = None

    def headers(self) -> dict[str, str]:
        token = self.token
        if self.token_file is not None:
            try:
                token = Path(self.token_file).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise StoreError(f"cannot read the token file {self.token_file}: {error}") from None
        return {"Authorization": f"Bearer {token}"} if token else {}


@dataclass(frozen=True)
class ApiServer:
    endpoint: Endpoint
    base: str = ""  # of every path, where the server lies behind a proxy
    plain: bool = False  # http, as `kubectl proxy` serves it
    ca: Pem = field(default=None, repr=False)
    cert: Pem = field(default=None, repr=False)
    key: Pem = field(default=None, repr=False)
    login: Login = Login()

    def connections(self) -> Connections:
        """Raises a UsageError if a certificate cannot be used."""
        with tempfile.TemporaryDirectory() if self._has_text() else _nowhere() as folder:
            files = TlsFiles(*(_as_file(pem, folder) for pem in (self.ca, self.cert, self.key)))
            return Connections(EtcdAddress((self.endpoint,), tls=None if self.plain else files))

    def _has_text(self) -> bool:
        return any(isinstance(pem, bytes) for pem in (self.ca, self.cert, self.key))


@dataclass(frozen=True)
class KubernetesAddress:
    namespace: str
    name: str
    server: ApiServer

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name} at {self.server.endpoint}"


def parse_kubernetes_url(
    url: str,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> KubernetesAddress:
    parts = urlsplit(url)
    namespace, name = parts.netloc, unquote(parts.path).strip("/")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    right = _NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name)
    if not right or options.keys() - {"kubeconfig"} or parts.fragment:
        raise UsageError(f"store URL: wanted {WANTED}, got {url!r}")
    if "kubeconfig" in options:
        server = from_kubeconfig(Path(options["kubeconfig"]))
    else:
        server = in_cluster(os.environ if environ is None else environ, service_account)
    return KubernetesAddress(namespace, name, server)


def in_cluster(environ: Mapping[str, str], folder: Path) -> ApiServer:
    """The API server as every pod finds it."""
    host, port = (environ.get(f"KUBERNETES_SERVICE_{what}", "") for what in ("HOST", "PORT"))
    ca, token = folder / "ca.crt", folder / "token"
    if not host or not token.exists():
        raise UsageError(
            f"store URL: wanted a pod with a service account's token, got no "
            f"{token if host else 'KUBERNETES_SERVICE_HOST'}; elsewhere add ?kubeconfig=FILE"
        )
    endpoint = Endpoint(host, _port(port or "443", "KUBERNETES_SERVICE_PORT"))
    return ApiServer(endpoint, ca=str(ca), login=Login(token_file=str(token)))


def from_kubeconfig(path: Path) -> ApiServer:
    config = _read(path)
    try:
        context = _named(config, "context", config["current-context"])
        cluster = _named(config, "cluster", context["cluster"])
        user = _named(config, "user", context["user"]) if context.get("user") else {}
        parts = urlsplit(cluster["server"])
        endpoint, base = _endpoint(parts, path), parts.path.rstrip("/")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(
            f"store URL: wanted a kubeconfig with a current context, its cluster and its user, got "
            f"{path}, in which there is no {error}"
        ) from None
    _refuse_what_is_not_understood(path, cluster, user)
    return ApiServer(
        endpoint,
        base,
        parts.scheme == "http",
        _pem(path, cluster, "certificate-authority"),
        _pem(path, user, "client-certificate"),
        _pem(path, user, "client-key"),
        Login(user.get("token"), _beside(path, user.get("tokenFile"))),
    )


def _read(path: Path) -> Json:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(
            f"store URL: wanted a kubeconfig that can be read, got {path} ({reason})"
        ) from None
    except ValueError:
        raise UsageError(
            f"store URL: wanted a kubeconfig in JSON, got {path}; write one with "
            "`kubectl config view --raw --flatten -o json`"
        ) from None
    if not isinstance(config, dict):
        raise UsageError(f"store URL: wanted a kubeconfig, got {path}, which is none")
    return config


def _named(config: Json, kind: str, name: str) -> Json:
    for item in config[f"{kind}s"]:
        if item["name"] == name:
            found: Json = item[kind]
            return found
    raise KeyError(f"{kind} named {name!r}")


def _endpoint(parts: SplitResult, path: Path) -> Endpoint:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"store URL: wanted a server https://HOST:PORT, got {parts.geturl()!r} in {path}"
        )
    return Endpoint(parts.hostname, parts.port or (80 if parts.scheme == "http" else 443))


def _refuse_what_is_not_understood(path: Path, cluster: Json, user: Json) -> None:
    ways = [name for name in _OTHER_LOGINS if name in user]
    ways += [name for name in (_UNCHECKED,) if cluster.get(name)]
    if ways:
        raise UsageError(
            f"store URL: wanted a kubeconfig with a token or a client certificate, got {path} with "
            f"{', '.join(ways)}"
        )


def _pem(path: Path, source: Json, name: str) -> Pem:
    if data := source.get(f"{name}-data"):
        try:
            return b64decode(data, validate=True)
        except (ValueError, TypeError):
            raise UsageError(f"store URL: wanted base64 in {name}-data, got {path}") from None
    return _beside(path, source.get(name))


def _beside(path: Path, name: str | None) -> str | None:
    """Relative paths in a kubeconfig start where it lies."""
    return str(path.parent / name) if name else None


def _port(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise UsageError(f"store URL: wanted a port in {name}, got {text!r}")
    return int(text)


class _nowhere:
    """In place of a folder, where none is needed."""

    def __enter__(self) -> str:
        return ""

    def __exit__(self, *_: object) -> None:
        return None


def _as_file(pem: Pem, folder: str) -> str | None:
    """OpenSSL takes keys from files only."""
    if not isinstance(pem, bytes):
        return pem
    handle, name = tempfile.mkstemp(dir=folder)  # 0600
    with os.fdopen(handle, "wb") as file:
        file.write(pem)
    return name
