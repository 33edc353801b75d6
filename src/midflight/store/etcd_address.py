"""Where an etcd cluster is: the URL, taken apart.

    etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]
    etcds://...[?ca=FILE][&cert=FILE&key=FILE]      the same over TLS

USER, PASSWORD and PREFIX may be percent-encoded. Messages never repeat the password.
"""

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from midflight.errors import UsageError

DEFAULT_PORT = 2379
DEFAULT_PREFIX = "midflight"
WANTED = "etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/PREFIX]"


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class TlsFiles:
    """None: what the system trusts; no certificate of one's own."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class EtcdAddress:
    endpoints: tuple[Endpoint, ...]
    prefix: str = DEFAULT_PREFIX
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None

    def __str__(self) -> str:
        return "etcd at " + ", ".join(map(str, self.endpoints))


def parse_etcd_url(url: str) -> EtcdAddress:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"store URL: wanted {WANTED}, got one that is malformed") from error
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    return EtcdAddress(
        endpoints=tuple(_endpoint(host) for host in hosts.split(",")),
        prefix=unquote(parts.path).strip("/") or DEFAULT_PREFIX,
        user=unquote(user) or None,
        password=unquote(password) if user else None,
        tls=_tls(parts),
    )


def _endpoint(text: str) -> Endpoint:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not host or (":" in host and not bracketed):
        raise UsageError(f"store URL: wanted {WANTED}, got host {text!r:.200}")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise UsageError(
            f"store URL: wanted a port from 1 to 65535, got {port!r:.80} in {text!r:.200}"
        )
    return Endpoint(host, int(port))


def _tls(parts: SplitResult) -> TlsFiles | None:
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "etcd":
        if options:
            raise UsageError(
                f"store URL: wanted no options after etcd://, got {', '.join(options):.200};"
                " certificates go with etcds://"
            )
        return None
    unknown = sorted(options.keys() - {"ca", "cert", "key"})
    if unknown:
        raise UsageError(
            f"store URL: wanted the options ca, cert, key, got {', '.join(unknown):.200}"
        )
    if ("cert" in options) != ("key" in options):
        raise UsageError("store URL: wanted cert and key together, got only one of them")
    return TlsFiles(options.get("ca"), options.get("cert"), options.get("key"))
