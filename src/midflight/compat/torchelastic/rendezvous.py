"""Where the nodes of a job meet: what the --rdzv flags mean.

The backend that is not named is guessed as torchrun's users would: none of it and one node means
this machine alone; an endpoint without a port, or with etcd's, means etcd, which was the default of
the launcher before torchrun; anything else is static. `c10d` and `midflight` are the same here.
"""

import re
import uuid
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from midflight.errors import UsageError
from midflight.store.etcd_address import Endpoint

BACKENDS = ("c10d", "etcd", "etcd-v2", "static", "midflight")
ETCD_PORT = 2379
C10D_PORT = 29400
STATIC_PORT = 29500
LAST_CALL = 2.0  # torchrun's own default is 30
JOIN_TIMEOUT = 600.0
LEASE = 5.0
_READ = {
    *("last_call_timeout", "join_timeout", "timeout", "is_host", "store_type"),
    *("keep_alive_interval", "keep_alive_max_attempt", "protocol", "cacert", "cert", "key"),
    "login_file",
}
# Times of steps that do not exist here.
_NOT_NEEDED = {"close_timeout", "heartbeat_timeout", "read_timeout", "rank", "use_libuv"}
_HOST = re.compile(r"[\w.:-]+")


@dataclass(frozen=True)
class Rendezvous:
    backend: str  # c10d | etcd | static; the other names are spellings of these
    endpoints: tuple[Endpoint, ...]  # more than one: any of them may carry the coordinator
    run_id: str
    node_rank: int = 0
    alone: bool = False  # nobody else will come: standalone, or one node without an endpoint
    workers_port: int | None = None  # where workers meet as well; None: at another port each time
    config: dict[str, str] = field(default_factory=dict)

    @property
    def last_call(self) -> float:
        return self._seconds("last_call_timeout", LAST_CALL)

    @property
    def join_timeout(self) -> float:
        return self._seconds("timeout", self._seconds("join_timeout", JOIN_TIMEOUT)) or JOIN_TIMEOUT

    @property
    def lease(self) -> float:
        """How long a node may be silent before it is lost."""
        if self.config.keys().isdisjoint({"keep_alive_interval", "keep_alive_max_attempt"}):
            return LEASE
        interval = self._seconds("keep_alive_interval", 5.0)
        return max(1.0, interval * self._seconds("keep_alive_max_attempt", 3.0))

    @property
    def is_host(self) -> bool | None:
        """Whether this process is to carry the coordinator; None: found out."""
        text = self.config.get("is_host", "").lower()
        if text in ("", "1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"):
            return None if not text else text[0] in "1ty"
        raise UsageError(f"--rdzv-conf is_host wants true or false, got {text!r}")

    def etcd_url(self, login: str = "") -> str:
        """`login`: USER:PASSWORD, if etcd asks for one."""
        user, colon, password = login.partition(":")
        who = f"{quote(user, safe='')}{colon}{quote(password, safe='')}@" if login else ""
        hosts = ",".join(map(str, self.endpoints))
        if self.config.get("protocol", "http") != "https":
            return f"etcd://{who}{hosts}/torchrun"
        names = {"cacert": "ca", "cert": "cert", "key": "key"}
        files = {to: self.config[name] for name, to in names.items() if name in self.config}
        return f"etcds://{who}{hosts}/torchrun" + (f"?{urlencode(files)}" if files else "")

    def _seconds(self, key: str, default: float) -> float:
        text = self.config.get(key)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e9:
            raise UsageError(f"--rdzv-conf {key} wants seconds, 0 or more, got {text!r}")
        return value


@dataclass(frozen=True)
class Words:
    """What the command line says about the rendezvous."""

    backend: str | None
    endpoint: str
    run_id: str
    config: str
    standalone: bool
    node_rank: int
    master_addr: str
    master_port: int | None
    min_nodes: int
    max_nodes: int


def understand(words: Words) -> tuple[Rendezvous, list[str]]:
    """What is meant, and lines about what has no meaning here."""
    config, notes = parse_config(words.config)
    backend = _backend(words)
    unnamed = words.backend in (None, "static") and not words.endpoint
    alone = words.standalone or (unnamed and words.max_nodes == 1 and words.master_port is None)
    if alone:
        here = Endpoint("127.0.0.1", 0)
        return Rendezvous("c10d", (here,), str(uuid.uuid4()), alone=True, config=config), notes
    if backend == "static":
        endpoint = words.endpoint or f"{words.master_addr}:{words.master_port or STATIC_PORT}"
        places = parse_endpoints(endpoint, STATIC_PORT)
    else:
        places = parse_endpoints(words.endpoint, ETCD_PORT if backend == "etcd" else C10D_PORT)
        if words.node_rank:
            notes.append("--node-rank counts with --rdzv-backend static only")
    if not words.run_id:
        raise UsageError("--rdzv-id wants a name, got an empty one")
    # With MIN:MAX nodes, newcomers need the port while workers train.
    fixed = backend == "static" and words.min_nodes == words.max_nodes and len(places) == 1
    port = places[0].port if fixed else None
    made = Rendezvous(
        backend, places, words.run_id, words.node_rank, config=config, workers_port=port or None
    )
    _check(made)
    return made, notes


def _backend(words: Words) -> str:
    if words.backend is None:
        port = words.endpoint.rpartition(":")[2]
        if words.endpoint and (":" not in words.endpoint or port == str(ETCD_PORT)):
            return "etcd"
        return "static"
    if words.backend not in BACKENDS:
        raise UsageError(
            f"--rdzv-backend wants one of {', '.join(BACKENDS)}, got {words.backend!r}"
        )
    return {"etcd-v2": "etcd", "midflight": "c10d"}.get(words.backend, words.backend)


def _check(made: Rendezvous) -> None:
    """Read every value once, so that a wrong one is refused at the start."""
    assert made.last_call >= 0 and made.join_timeout > 0 and made.lease > 0
    assert made.is_host in (None, True, False)
    if made.config.get("store_type", "tcp") != "tcp":
        raise UsageError(
            f"--rdzv-conf store_type={made.config['store_type']} is not there; "
            "leave it out, or use --rdzv-backend etcd"
        )


def parse_config(text: str) -> tuple[dict[str, str], list[str]]:
    """`KEY=VALUE,...` as a table, and a line for each key that means nothing."""
    config: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = part.partition("=")
        if not key.strip() or not equals or not value.strip():
            raise UsageError(f"--rdzv-conf wants KEY=VALUE,KEY=VALUE, got {part!r}")
        config[key.strip()] = value.strip()
    unknown = sorted(config.keys() - _READ - _NOT_NEEDED)
    return config, [f"--rdzv-conf {key} has no meaning here" for key in unknown]


def parse_endpoints(text: str, default_port: int) -> tuple[Endpoint, ...]:
    return tuple(_endpoint(part.strip(), default_port) for part in (text or "localhost").split(","))


def _endpoint(text: str, default_port: int) -> Endpoint:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _HOST.fullmatch(host):
        raise UsageError(f"--rdzv-endpoint wants HOST:PORT, got {text!r}")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--rdzv-endpoint wants a port from 0 to 65535, got {port!r} in {text!r}")
    return Endpoint("127.0.0.1" if host == "localhost" else host, int(port))
