"""The port for Prometheus, which cannot read a unix socket: opened only where somebody asks for it.

`MIDFLIGHT_METRICS=[HOST:]PORT` says where; without a host it is the loopback. The port serves
`/metrics` and nothing else, to whoever brings the token in `metrics.token`. That token is made once
and is good for nothing else. The server reads it when it starts.
"""

import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from midflight import atomic_file
from midflight.errors import UsageError
from midflight.monitoring.page_server import bind
from midflight.private_file import read_private

VARIABLE = "MIDFLIGHT_METRICS"
TOKEN = "metrics.token"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class MetricsPort:
    listener: socket.socket
    token: bytes


def open_port(home: Path, environ: Mapping[str, str]) -> MetricsPort | None:
    """None: nobody asks for it."""
    if not (wanted := environ.get(VARIABLE, "")):
        return None
    address = read_address(wanted)
    return MetricsPort(bind(address), _token(home / TOKEN))


def read_address(text: str) -> tuple[str, int]:
    """Port 0: any that is free."""
    host, colon, port = text.rpartition(":")
    number = port if port.isdecimal() and len(port) < 6 and int(port) < 65536 else ""
    host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    if not (number and host):
        raise UsageError(f"wanted {VARIABLE}=PORT or HOST:PORT, got {text!r:.200}")
    return host, int(number)


def _token(path: Path) -> bytes:
    if not path.exists():
        try:
            atomic_file.write(path, secrets.token_hex(32).encode() + b"\n")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
    token = read_private(path, "token file", "delete it and have another made").strip()
    if not token:
        raise UsageError(f"the token file {path} is empty; delete it and have another made")
    return token
