"""`kungfu-config-server`: a config store as a program of its own, with KungFu's flags."""

import ipaddress
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from midflight import durations
from midflight.compat.kungfu import go_flags
from midflight.compat.kungfu.cluster import Cluster, loads
from midflight.compat.kungfu.config_store import ConfigServer, ConfigStore
from midflight.compat.kungfu.go_flags import Flag
from midflight.console import exit_code_of, say
from midflight.errors import UsageError
from midflight.rundir import read_token

PROGRAM = "kungfu-config-server"
FLAGS = {
    "host": Flag("127.0.0.1", go_flags.text, "address to listen on"),
    "port": Flag(9100, go_flags.whole(0, 65535), "port to listen on; 0 for any"),
    "endpoint": Flag("/config", go_flags.text, "path of the config"),
    "init": Flag("", go_flags.text, "file with the first config"),
    "ttl": Flag(0.0, durations.parse, "end after this time; 0 for never"),
    "token-file": Flag("", go_flags.text, "ask callers for the token in this file"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _serve(sys.argv[1:] if argv is None else argv))


def _serve(words: Sequence[str]) -> int:
    values, _, rest = go_flags.parse(PROGRAM, FLAGS, words)
    if rest:
        raise UsageError(f"{PROGRAM} takes flags only, got {rest[0]!r:.80}")
    if not values["endpoint"].startswith("/") or values["endpoint"] == "/stop":
        raise UsageError(f"-endpoint wants a path such as /config, got {values['endpoint']!r:.80}")
    store = ConfigStore(read_file(values["init"]) if values["init"] else None)
    token = read_token(Path(values["token-file"])) if values["token-file"] else None
    server = ConfigServer(values["host"], values["port"], values["endpoint"], store, token)
    if token is None and not _is_loopback(values["host"]):
        say("warning: whoever reaches this port can change the cluster; see -token-file")
    say(f"config server at {server.url}")
    if values["ttl"]:
        timer = threading.Timer(values["ttl"], server.stop)
        timer.daemon = True
        timer.start()
    with server:
        server.serve()
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_file(path: str) -> Cluster:
    try:
        return loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read the config {path}: {reason}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
