"""The launcher's options: what `midflight run` accepts, checked, as one frozen value.

Everything that can be wrong is found here, before anything is started. The flags are horovodrun's
where it has them. How many members: -np to start with, and between --min-np and --max-np later.
Programs that launch a run fill in `Given` and call `check`; `parse` does that from a command line.
"""

import argparse
import math
import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from midflight.arguments import Parser, count_from, seconds
from midflight.deadlines import COME_BACK
from midflight.errors import UsageError
from midflight.private_file import read_private
from midflight.protocol.dialect import OWN, Dialect
from midflight.protocol.environment import JOIN_BANDWIDTH
from midflight.protocol.job import JobSpec
from midflight.protocol.tunnel import TLS, check_tls
from midflight.quantities import counted, quantity
from midflight.run.addresses import check_listen, is_local
from midflight.run.hosted import Hosted, hosted
from midflight.run.hosts import Hosts, parse_hosts, read_hostfile
from midflight.rundir import RunDir
from midflight.store.urls import has_password

LEDGER_DIR = "MIDFLIGHT_LEDGER_DIR"  # the flag of that name, where commands have none
NO_LEDGERS = "none"  # in its place
UNBOUNDED = 1000  # members; what --max-np is where nothing else was said of an elastic job


@dataclass(frozen=True)
class Options:
    spec: JobSpec
    folder: RunDir
    hosts: Hosts  # empty when there is a discovery script
    discovery: str | None
    hosted: Hosted | None  # None: nobody's job, started by hand
    slots_per_host: int
    store: str | None  # None: the run folder's own
    listen: str | None  # None: on loopback, unless a host is elsewhere
    warm: int
    verbose: bool
    tls: bool
    name_was_given: bool
    environ: Mapping[str, str] = field(repr=False)

    @property
    def coordinator_flags(self) -> list[str]:
        return [*(["--verbose"] if self.verbose else []), *(["--tls"] if self.tls else [])]


@dataclass(frozen=True)
class Given:
    """What was asked for, unchecked; None where nothing was said."""

    command: tuple[str, ...]
    name: str | None = None
    store: str | None = None
    store_file: str | None = None  # holds the URL, out of sight of `ps`
    listen: str | None = None
    tls: bool = False
    verbose: bool = False
    np: int | None = None
    min_np: int | None = None
    max_np: int | None = None
    reset_limit: int | None = None
    warm: int = 0
    hosts: Hosts | None = None
    host_discovery_script: str | None = None
    slots_per_host: int | None = None
    elastic_timeout: float = JobSpec.elastic_timeout
    start_timeout: float = JobSpec.start_timeout
    grace: float = JobSpec.grace
    hang_timeout: float = JobSpec.hang_timeout
    cooldown: tuple[float, float] = (JobSpec.cooldown_min, JobSpec.cooldown_max)
    timestamps: bool = False
    output_dir: str | None = None
    ledger_dir: str | None = None
    join_bandwidth: float | None = None
    dialect: Dialect = OWN
    environment: Mapping[str, str] = field(default_factory=dict)  # for every member


def parse(argv: Sequence[str] | None, environ: Mapping[str, str]) -> Options:
    """Read the command line, or raise a UsageError that says what is wrong with it."""
    words = vars(parser().parse_args(argv))
    command, hosts, hostfile = words.pop("command"), words.pop("hosts"), words.pop("hostfile")
    slots = words["slots_per_host"] or 1
    listed: Hosts | None = None
    if hosts is not None:
        listed = parse_hosts(hosts, slots)
    elif hostfile is not None:
        listed = read_hostfile(hostfile, slots)
    command = command[1:] if command[:1] == ["--"] else command
    local = all(is_local(host) for host in listed or ())
    return check(Given(_with_python(command, local), hosts=listed, **words), environ)


def _with_python(command: Sequence[str], local: bool) -> tuple[str, ...]:
    """A script alone is run by Python, as torchrun does, unless it can be executed itself."""
    script = command[0] if command else ""
    if not script.endswith(".py") or os.access(script, os.X_OK):
        return tuple(command)
    if local and not os.path.exists(script):
        raise UsageError(f"there is no script {script!r} in {os.getcwd()}")
    return (sys.executable if local else "python3", "-u", *command)


def check(given: Given, environ: Mapping[str, str]) -> Options:
    """The run that was asked for, or a UsageError that says what is wrong with it."""
    job = hosted(environ)
    if job is not None:
        job, given = _in_job(job, given)
    name = given.name or (job.job if job else f"run-{secrets.token_hex(3)}")
    folder = RunDir(job.run_folder) if job else RunDir.of(name, environ)
    hosts = given.hosts or {}
    ledgers = _ledgers(given.ledger_dir or environ.get(LEDGER_DIR), name, folder)
    spec = _spec(given, name, ledgers, hosts)
    if job is not None:
        come_back = COME_BACK if job.may_move else 0.0
        spec = replace(spec, eager=True, come_back=come_back)
    elif not hosts:
        hosts = _default_hosts(given, spec)
    spec = replace(spec, order=tuple(hosts))
    _check_room(spec, hosts)
    if not hosts or any(is_local(host) for host in hosts):
        _check_command(given.command[0], environ)
    return Options(
        spec=spec,
        folder=folder,
        hosts=hosts,
        discovery=given.host_discovery_script,
        hosted=job,
        slots_per_host=given.slots_per_host or 1,
        store=_store(given) or (job.store if job else None),
        listen=_listen(given.listen, job),
        warm=given.warm,
        verbose=given.verbose,
        tls=_tls(given, environ),
        name_was_given=given.name is not None or job is not None,
        environ=environ,
    )


def _in_job(job: Hosted, given: Given) -> tuple[Hosted | None, Given]:
    """Inside a job its workers are the hosts, unless others are named."""
    if given.hosts is not None:
        return None, given
    if given.host_discovery_script is not None:
        if not job.means_own_script(given.host_discovery_script):
            return None, given
        given = replace(given, host_discovery_script=None)
    return job, replace(given, min_np=given.min_np or given.np or 1)


def _store(given: Given) -> str | None:
    if given.store_file is None:
        if given.store and has_password(given.store):
            raise UsageError(
                "--store holds a password, which every user of this machine can see there: put "
                "the URL into a file of mode 600, name it with --store-file, and change the "
                "password if others use this machine"
            )
        return given.store or None
    if given.store:
        raise UsageError("wanted --store or --store-file, got both")
    try:
        url = Path(given.store_file).read_text(encoding="utf-8").strip()
        if has_password(url):
            url = read_private(Path(given.store_file), "file", "change the password").decode()
        return url.strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"--store-file: cannot read {given.store_file}: {error}") from None
    except UsageError as error:
        raise UsageError(f"--store-file: {error}") from None


def _tls(given: Given, environ: Mapping[str, str]) -> bool:
    wanted = given.tls or environ.get(TLS) == "1"
    if wanted:
        check_tls()
    return wanted


def _listen(given: str | None, job: Hosted | None) -> str | None:
    asked = given or (job.listen if job else None)
    return check_listen(asked) if asked else None


def _spec(given: Given, name: str, ledger: str, hosts: Hosts) -> JobSpec:
    np = given.np or given.min_np or min(sum(hosts.values()) or 1, given.max_np or UNBOUNDED)
    elastic = given.min_np is not None or given.host_discovery_script is not None
    return JobSpec(
        name=name,
        command=given.command,
        np=np,
        min_np=given.min_np or np,
        max_np=given.max_np or (max(np, UNBOUNDED) if elastic else np),
        elastic_timeout=given.elastic_timeout,
        start_timeout=given.start_timeout,
        reset_limit=given.reset_limit,
        cooldown_min=given.cooldown[0],
        cooldown_max=given.cooldown[1],
        grace=given.grace,
        hang_timeout=given.hang_timeout,
        timestamps=given.timestamps,
        output_dir=_made("--output-dir", Path(given.output_dir)) if given.output_dir else None,
        ledger=ledger,
        dialect=given.dialect,
        environment=_environment(given),
    )


def _environment(given: Given) -> dict[str, str]:
    """Of every member."""
    if given.join_bandwidth is None:
        return dict(given.environment)
    return {**given.environment, JOIN_BANDWIDTH: f"{given.join_bandwidth:.0f}"}


def _default_hosts(given: Given, spec: JobSpec) -> Hosts:
    """This machine, with room for as many members as were spoken of."""
    if given.host_discovery_script is not None:
        return {}
    return {"localhost": given.slots_per_host or max(spec.np, given.max_np or 0)}


def _check_room(spec: JobSpec, hosts: Hosts) -> None:
    room = sum(hosts.values())
    if hosts and room < spec.min_np:
        listed = ",".join(f"{host}:{slots}" for host, slots in hosts.items())
        raise UsageError(
            f"{counted(spec.min_np, 'member')} needed to start, the hosts have "
            f"{counted(room, 'slot')} ({listed}); "
            "add hosts or slots, or lower -np or --min-np"
        )


def _check_command(program: str, environ: Mapping[str, str]) -> None:
    if shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
        raise UsageError(
            f"the command {program!r} was not found, or may not be executed; "
            "give what you would type in a shell, as in `-- python train.py`"
        )


def _ledgers(wish: str | None, name: str, folder: RunDir) -> str:
    if wish == NO_LEDGERS:
        return ""
    return _made("--ledger-dir", Path(wish) / name) if wish else str(folder.ledgers.absolute())


def _made(flag: str, path: Path) -> str:
    """The folder of a flag, before anything else is there that would have to go again."""
    path = path.absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{flag}: cannot make {path}: {error.strerror}") from None
    return str(path)


def _bytes_per_second(text: str) -> float:
    """A quantity as Kubernetes writes it, with or without its unit: 500M, 1Gi, 500MB/s."""
    try:
        value = quantity(text.removesuffix("/s").removesuffix("B"))
    except UsageError:
        value = 0.0
    if not 1000.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(
            f"wanted bytes per second, as in 500M or 1Gi, 1k or more, got {text!r}"
        )
    return value


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="midflight run",
        usage="midflight run [options] [--] COMMAND ...",
        description="Runs a training script as an elastic job: its members may come and go.",
        allow_abbrev=False,
    )
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run")
    add = made.add_argument
    add("--name", help="of the run, for `midflight resize` and `status` (default: generated)")
    add(
        "--store",
        metavar="URL",
        help="where the job's state is kept: a path, sqlite:///PATH, etcd://HOST:PORT,... or "
        "kubernetes://NAMESPACE/NAME, a ConfigMap (default: in the run's folder)",
    )
    add(
        "--store-file",
        metavar="FILE",
        help="a file with the URL of the store, which may hold a password that `ps` must not show",
    )
    add(
        "--listen",
        metavar="HOST:PORT",
        help="where the coordinator listens (default: loopback, "
        "or 0.0.0.0 when a host is not this machine; any port)",
    )
    add("--tls", action="store_true", help="encrypt what coordinator, agents and members say")
    add("--verbose", action="store_true", help="print what Midflight is doing")
    _add_sizes(made)
    _add_hosts(made)
    _add_times(made)
    _add_output(made)
    return made


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("how many").add_argument
    count = count_from(1)
    add(
        "-np",
        "--num-proc",
        "--nproc-per-node",
        "--nproc_per_node",
        dest="np",
        type=count,
        metavar="N",
        help="members to start with (default: --min-np, or the slots of -H, or 1)",
    )
    add(
        "--min-np",
        "--min-num-proc",
        dest="min_np",
        type=count,
        metavar="N",
        help="training pauses with fewer members (default: -np)",
    )
    add(
        "--max-np",
        "--max-num-proc",
        dest="max_np",
        type=count,
        metavar="N",
        help="more are never used (default: -np, but no limit with --min-np or a discovery script)",
    )
    add(
        "--reset-limit",
        type=count_from(0),
        metavar="N",
        help="failures after which the job gives up (default: none)",
    )
    add(
        "--warm",
        type=count_from(0),
        default=0,
        metavar="N",
        help="members that each host keeps ready to start (default 0)",
    )
    add(
        "--join-bandwidth",
        type=_bytes_per_second,
        metavar="RATE",
        help="bytes per second, as in 500M or 1Gi, at which a member sends a large state to a "
        "newcomer while all train (default: no limit)",
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where (default: this machine)")
    source = group.add_mutually_exclusive_group()
    source.add_argument("-H", "--hosts", metavar="HOST:SLOTS,...", help="the hosts to use")
    source.add_argument("-hostfile", "--hostfile", metavar="FILE", help="lines `HOST slots=N`")
    source.add_argument(
        "--host-discovery-script",
        metavar="SCRIPT",
        help="prints the hosts of the moment, HOST or HOST:SLOTS, each second anew",
    )
    group.add_argument(
        "--slots-per-host",
        "--slots",
        type=count_from(1),
        metavar="N",
        help="for hosts that come without a number (default 1)",
    )


def _add_times(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how long, in seconds")

    def add(option: str, text: str) -> None:
        default = getattr(Given, option[2:].replace("-", "_"))
        text = f"{text} ({default:g})"
        group.add_argument(option, type=seconds, default=default, metavar="S", help=text)

    add("--elastic-timeout", "how long to wait while fewer than --min-np are left")
    add("--start-timeout", "how long to wait for -np slots; after that, --min-np is enough")
    add("--grace", "between a notice (SIGTERM) and the end")
    add("--hang-timeout", "a member that makes no progress for longer is killed")
    group.add_argument(
        "--cooldown",
        "--blacklist-cooldown-range",
        nargs=2,
        type=seconds,
        default=Given.cooldown,
        metavar=("MIN", "MAX"),
        help="a host that failed is avoided for MIN, then twice as long, up to MAX (5 300)",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output").add_argument
    add(
        "--timestamps",
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        action="store_true",
        help="before each line",
    )
    add(
        "--output-dir",
        "--output-filename",
        metavar="DIR",
        help="also keep each member's output, in DIR/MEMBER/stdout and stderr",
    )
    add(
        "--ledger-dir",
        metavar="DIR",
        help="a folder that all hosts share: keep what `midflight audit` reads in DIR/NAME; "
        f"{NO_LEDGERS}: keep nothing (default: ${LEDGER_DIR}, or the run's folder)",
    )
