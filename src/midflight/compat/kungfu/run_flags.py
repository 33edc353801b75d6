"""What `kungfu-run` accepts, and what it means here, as one frozen value.

The flags are KungFu's. Those that choose how its own library communicates have no use here; that
is said in one line, and everything goes on.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from midflight import durations
from midflight.compat.kungfu import go_flags
from midflight.compat.kungfu.cluster import FIRST_PORT, LAST_PORT, RUNNER_PORT
from midflight.compat.kungfu.config import ConfigStoreClient
from midflight.compat.kungfu.go_flags import Flag
from midflight.errors import UsageError
from midflight.run.hosts import Hosts, parse_hosts, read_hostfile

PROGRAM = "kungfu-run"
STRATEGIES = (
    "STAR",
    "MULTI_STAR",
    "RING",
    "CLIQUE",
    "TREE",
    "BINARY_TREE",
    "BINARY_TREE_STAR",
    "MULTI_BINARY_TREE_STAR",
    "AUTO",
)
ROOM = 64  # members that fit on this machine, where neither hosts nor a store say so
_WITHOUT_USE = {
    "strategy": "how members communicate is chosen by torch",
    "nic": "addresses come from -H, or from the config store",
    "allow-nvlink": "NCCL finds NVLink by itself",
    "port": "runners need no port of their own",
    "u": "hosts elsewhere are not logged in to",
    "t0": "the start is noted by itself",
    "logfile": "what the launcher says goes to stderr",
    "auto-recover": "a lost member never ends an elastic job",
}


def _strategy(given: str) -> str:
    if given not in STRATEGIES:
        raise UsageError(f"wanted one of {', '.join(STRATEGIES)}, got {given!r:.40}")
    return given


def _port_range(given: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", given)
    if found is None or not 0 < int(found[1]) <= int(found[2]) <= 65535:
        raise UsageError(f"wanted FIRST-LAST, as in {FIRST_PORT}-{LAST_PORT}, got {given!r:.40}")
    return int(found[1]), int(found[2])


def _elastic_mode(given: str) -> str:
    if given not in ("", "delta", "reload"):
        raise UsageError(f"wanted delta or reload, got {given!r:.40}")
    return given


FLAGS = {
    "np": Flag(1, go_flags.whole(1, 10_000), "number of workers to start with"),
    "H": Flag("", go_flags.text, "hosts, as IP:SLOTS,... (default this machine)"),
    "hostfile": Flag("", go_flags.text, "file with lines `HOST slots=N`, instead of -H"),
    "P": Flag("", go_flags.text, "comma separated list of HOST:PORT, one for each worker"),
    "w": Flag(False, go_flags.switch, "watch the config: the job may grow and shrink"),
    "config-server": Flag("", go_flags.text, "URL of the config server"),
    "config-token-file": Flag("", go_flags.text, "file with the config server's token"),
    "builtin-config-port": Flag(
        0, go_flags.whole(0, 65535), "run a config server on this port; 0 for none"
    ),
    "elastic-mode": Flag("", _elastic_mode, "delta or reload; members always stay in place here"),
    "init-version": Flag(0, go_flags.whole(-1, 1 << 31), "-1: wait until the store names workers"),
    "k": Flag(False, go_flags.switch, "stay when the workers have finished"),
    "timeout": Flag(0.0, durations.parse, "end the job after this time; 0 for never"),
    "delay": Flag(0.0, durations.parse, "begin after this time"),
    "warm": Flag(0, go_flags.whole(0, 1000), "workers that each host keeps ready to start"),
    "name": Flag("", go_flags.text, "of the run, for `midflight status` and `resize`"),
    "logdir": Flag("", go_flags.text, "also keep each worker's output in this folder"),
    "debug-port": Flag(0, go_flags.whole(0, 65535), "show the stages as JSON on this port"),
    "q": Flag(False, go_flags.switch, "say less"),
    "v": Flag(True, go_flags.switch, "show the workers' output"),
    "port-range": Flag((FIRST_PORT, LAST_PORT), _port_range, "ports that name workers"),
    "self": Flag("", go_flags.text, "this machine's address among the hosts"),
    "strategy": Flag("BINARY_TREE_STAR", _strategy, "has no use here"),
    "nic": Flag("", go_flags.text, "has no use here"),
    "allow-nvlink": Flag(False, go_flags.switch, "has no use here"),
    "port": Flag(RUNNER_PORT, go_flags.whole(0, 65535), "has no use here"),
    "u": Flag("", go_flags.text, "has no use here"),
    "t0": Flag(0, go_flags.whole(0, 1 << 62), "has no use here"),
    "logfile": Flag("", go_flags.text, "has no use here"),
    "auto-recover": Flag(0.0, durations.parse, "has no use here"),
}


@dataclass(frozen=True)
class RunFlags:
    np: int
    hosts: Hosts  # empty: this machine
    watch: bool
    store: str  # URL; "" for none
    token_file: str
    builtin_port: int
    elastic_mode: str
    strategy: str
    wait_for_store: bool
    keep: bool
    timeout: float
    delay: float
    warm: int
    name: str
    logdir: str
    debug_port: int
    first_port: int
    notes: tuple[str, ...]  # to be said before the start
    command: tuple[str, ...]


def read(words: Sequence[str]) -> RunFlags:
    values, given, command = go_flags.parse(PROGRAM, FLAGS, words)
    if not command:
        raise UsageError(f"missing program name; as in `{PROGRAM} -np 2 python3 train.py`")
    if values["P"] and (values["H"] or values["hostfile"]):
        raise UsageError("-P names the workers one by one, and leaves nothing to -H or -hostfile")
    hosts = _hosts(values)
    np = values["np"] if "np" in given or not values["P"] else sum(hosts.values())
    builtin = values["builtin-config-port"]
    store = values["config-server"] or (builtin and f"http://127.0.0.1:{builtin}/config") or ""
    notes = [
        f"-{name} has no use here: {why}" for name, why in _WITHOUT_USE.items() if name in given
    ]
    if store and not values["w"]:
        notes.append("a config server is followed (-w) wherever one is given")
    if values["elastic-mode"] == "reload":
        notes.append("-elastic-mode reload: members stay, and are resized in place")
    _check_store(store, values["init-version"])
    _check_self(values["self"], hosts)
    token_file = values["config-token-file"]
    return RunFlags(
        np=np,
        hosts=hosts,
        watch=values["w"] or bool(store),
        store=store,
        token_file=os.path.abspath(token_file) if token_file else "",
        builtin_port=builtin,
        elastic_mode=values["elastic-mode"],
        strategy=values["strategy"],
        wait_for_store=values["init-version"] < 0,
        keep=values["k"],
        timeout=values["timeout"],
        delay=values["delay"],
        warm=values["warm"],
        name=values["name"],
        logdir=values["logdir"],
        debug_port=values["debug-port"],
        first_port=values["port-range"][0],
        notes=() if values["q"] else tuple(notes),
        command=tuple(command),
    )


def _check_store(url: str, init_version: int) -> None:
    if url:
        ConfigStoreClient(url)
    elif init_version < 0:
        raise UsageError("-init-version -1 waits for a config server; name one by -config-server")


def _check_self(own: str, hosts: Hosts) -> None:
    """KungFu wants one launcher on each host; a second one here would be a second job."""
    if own and hosts and own != next(iter(hosts)):
        raise UsageError(
            f"-self {own} is not the first host: {PROGRAM} is started once, on the first host, and "
            "prints the `midflight agent` line to run on each of the others"
        )


def _hosts(values: dict[str, object]) -> Hosts:
    if values["hostfile"]:
        return read_hostfile(str(values["hostfile"]), 1)
    if values["P"]:
        counted: Hosts = {}
        for item in str(values["P"]).split(","):
            (host,) = parse_hosts(item.partition(":")[0], 1)
            counted[host] = counted.get(host, 0) + 1
        return counted
    if not values["H"]:
        return {}
    # IP:SLOTS:PUBLIC is KungFu's form; the public address is for logging in
    items = [":".join(item.split(":")[:2]) for item in str(values["H"]).split(",")]
    return parse_hosts(",".join(items), 1)
