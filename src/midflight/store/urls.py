"""From what a user wrote after --store to an open store.

Decides which kind is meant, and refuses what is none with the forms there are. The kinds themselves
say what is wrong with a path or a host; no message repeats a password.
"""

import re
from urllib.parse import unquote

from midflight.errors import UsageError
from midflight.store.embedded import EmbeddedStore
from midflight.store.interface import Store

_WANTED = (
    "a path, sqlite:///PATH, etcd://HOST:PORT[,HOST:PORT...][/PREFIX], "
    "or kubernetes://NAMESPACE/NAME"
)


def open_store(url: str, *, patience: float = 10.0) -> Store:
    """Opens the store at `url`; every call on it rides out trouble for `patience` seconds."""
    scheme, colon, rest = url.partition("://")
    if not colon and url.strip() and not re.match(r"(sqlite|etcds?|kubernetes):", url):
        return EmbeddedStore(url, patience=patience)
    match scheme:
        case "sqlite" if rest.startswith("/") and rest.strip("/"):
            return EmbeddedStore(unquote(rest), patience=patience)
        case "etcd" | "etcds" if rest:
            from midflight.store.etcd import EtcdStore  # its http and ssl are slow to load
            from midflight.store.etcd_address import parse_etcd_url

            return EtcdStore(parse_etcd_url(url), patience=patience)
        case "kubernetes" if rest:
            from midflight.store.kubernetes import KubernetesStore
            from midflight.store.kubernetes_address import parse_kubernetes_url

            return KubernetesStore(parse_kubernetes_url(url), patience=patience)
    raise UsageError(f"store URL: wanted {_WANTED}, got {_without_secret(url)!r}")


def has_password(url: str) -> bool:
    """Whether an address has credentials: NAME:PASSWORD@, and not HOST:PORT/PREFIX."""
    return re.match(r"etcds?://[^:/@]*:(?!\d+(?:[,/]|$)).*@", url) is not None


def _without_secret(url: str) -> str:
    return re.sub(r"(?<=//).*@", "***@", url)
