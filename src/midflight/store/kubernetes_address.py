"""Where a store on Kubernetes is: one ConfigMap, and how its API server is reached.

    kubernetes://NAMESPACE/NAME                     in a pod, as its service account
    kubernetes://NAMESPACE/NAME?kubeconfig=FILE     elsewhere, with FILE's current context

A kubeconfig is read as JSON, because a training image need not have a parser for YAML. Of the ways
to log in, tokens and client certificates are understood; those that call another program are
refused.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from midflight import kubeconfig
from midflight.errors import UsageError
from midflight.kubeconfig import ACCOUNT, Settings
from midflight.store.etcd_address import Endpoint

WANTED = "kubernetes://NAMESPACE/NAME[?kubeconfig=FILE]"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_OTHER_LOGINS = ("exec", "auth-provider", "username")
_UNCHECKED = "insecure-skip-tls-verify"


@dataclass(frozen=True)
class KubernetesAddress:
    namespace: str
    name: str
    settings: Settings
    endpoint: Endpoint
    base: str = ""  # of every path, where the server lies behind a proxy
    plain: bool = False  # http, as `kubectl proxy` serves it

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name} at {self.endpoint}"


def parse_kubernetes_url(
    url: str, environ: Mapping[str, str] | None = None, account: Path = ACCOUNT
) -> KubernetesAddress:
    parts = urlsplit(url)
    namespace, name = parts.netloc, unquote(parts.path).strip("/")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    right = _NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name)
    if not right or options.keys() - {"kubeconfig"} or parts.fragment:
        raise UsageError(f"store URL: wanted {WANTED}, got {url!r}")
    if "kubeconfig" in options:
        settings = _from_kubeconfig(Path(options["kubeconfig"]))
    else:
        settings = _in_cluster(os.environ if environ is None else environ, account)
    return _address(namespace, name, settings)


def _address(namespace: str, name: str, settings: Settings) -> KubernetesAddress:
    try:
        server = urlsplit(settings.server)
        plain = server.scheme == "http"
        endpoint = Endpoint(server.hostname or "", server.port or (80 if plain else 443))
    except ValueError:  # a port that is no number
        endpoint = Endpoint("", 0)
    if not endpoint.host or server.scheme not in ("http", "https"):
        raise UsageError(
            f"store URL: wanted a server https://HOST:PORT, got {settings.server!r} in "
            f"{settings.source}"
        )
    return KubernetesAddress(
        namespace, name, settings, endpoint, server.path.rstrip("/"), server.scheme == "http"
    )


def _in_cluster(environ: Mapping[str, str], account: Path) -> Settings:
    """The API server as every pod finds it."""
    try:
        return kubeconfig.in_pod(environ, account)
    except UsageError:
        raise UsageError(
            f"store URL: wanted a pod with a service account's token in {account} and "
            "KUBERNETES_SERVICE_HOST and _PORT; elsewhere add ?kubeconfig=FILE"
        ) from None


def _from_kubeconfig(path: Path) -> Settings:
    config = _read(path)
    try:
        kubeconfig.make_absolute(config, path.parent)
        settings = kubeconfig.select(kubeconfig.merge([config]), str(path))
        if not settings.server:
            raise KeyError("server")
    except (KeyError, TypeError, AttributeError, ValueError, UsageError) as error:
        raise UsageError(
            f"store URL: wanted a kubeconfig with a current context, its cluster and its user, got "
            f"{path}: {f'no {error}' if isinstance(error, KeyError) else error}"
        ) from None
    ways = [name for name in _OTHER_LOGINS if name in settings.user]
    ways += [name for name in (_UNCHECKED,) if settings.cluster.get(name)]
    if ways:
        raise UsageError(
            f"store URL: wanted a kubeconfig with a token or a client certificate, got {path} with "
            f"{', '.join(ways)}"
        )
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(
            f"store URL: wanted a kubeconfig that can be read, got {path} ({reason})"
        ) from None
    except ValueError:
        raise UsageError(
            f"store URL: wanted a kubeconfig in JSON, got {path}; write one with "
            "`kubectl config view --raw --flatten -o json`"
        ) from None
    if not isinstance(config, dict):
        raise UsageError(f"store URL: wanted a kubeconfig, got {path}, which is not one")
    return config
