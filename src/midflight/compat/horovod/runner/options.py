"""What horovodrun's flags mean here: the options of a run.

A job is elastic if there is a discovery script or `--min-np`; otherwise it is static, and the first
process that fails ends it. An elastic job that nobody else sizes (it is not inside a job of ours)
takes every slot that there is, up to `--max-np`. Everything that can be wrong is found here, before
anything is started.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace

from midflight.compat.horovod.runner import messages, tunables
from midflight.errors import JobFailed, UsageError
from midflight.protocol.dialect import Dialect
from midflight.protocol.handover import parse_command
from midflight.run.hosts import Hosts, parse_hosts, read_hostfile
from midflight.run.options import UNBOUNDED, Given, Options, check

LOWEST_COOLDOWN, HIGHEST_COOLDOWN = 1, 3600  # seconds

# What a process is told of its place; true at its start, as with Horovod itself.
_ENVIRONMENT = {
    "HOROVOD_HOSTNAME": "{host}",
    "HOROVOD_RANK": "{rank}",
    "HOROVOD_SIZE": "{size}",
    "HOROVOD_LOCAL_RANK": "{local_rank}",
    "HOROVOD_LOCAL_SIZE": "{local_size}",
    "HOROVOD_CROSS_RANK": "{cross_rank}",
    "HOROVOD_CROSS_SIZE": "{cross_size}",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "{master_address}",
    "HOROVOD_GLOO_RENDEZVOUS_PORT": "{master_port}",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
}


def is_elastic(given: argparse.Namespace) -> bool:
    return given.host_discovery_script is not None or given.min_num_proc is not None


def options(given: argparse.Namespace, environ: Mapping[str, str]) -> Options:
    """The run that was asked for, or an error that says what is wrong."""
    tunables.check(given)
    _check_cooldown(given)
    made = check(_asked(given, _hosts(given), environ), environ)
    elastic = is_elastic(given)
    takes_all = elastic and made.hosted is None
    own = dialect(elastic, takes_all_slots=takes_all, level=given.log_level or "")
    return replace(made, spec=replace(made.spec, dialect=own))


def dialect(elastic: bool, *, takes_all_slots: bool, level: str = "") -> Dialect:
    """How horovodrun treats its processes, and what it tells them and their user."""
    return Dialect(
        fixed_size=not elastic,
        warm_later=True,
        takes_all_slots=takes_all_slots,
        environment={**_ENVIRONMENT, **({"HOROVOD_ELASTIC": "1"} if elastic else {})},
        by_rank=True,
        log_level=level,
        output_folder="rank.{rank:0{width}d}",
        ended_badly="Process {rank} exit with status code {status}.",
    )


def _asked(given: argparse.Namespace, hosts: Hosts | None, environ: Mapping[str, str]) -> Given:
    np, least, most = _sizes(given, hosts)
    return Given(
        command=tuple(given.command),
        np=np,
        min_np=least,
        max_np=most,
        hosts=hosts,
        host_discovery_script=given.host_discovery_script,
        slots_per_host=given.slots,
        start_timeout=_seconds(given.start_timeout, "START", Given.start_timeout, environ),
        elastic_timeout=_seconds(given.elastic_timeout, "ELASTIC", Given.elastic_timeout, environ),
        cooldown=tuple(given.cooldown_range or Given.cooldown),
        reset_limit=given.reset_limit,
        timestamps=given.timestamps,
        output_dir=given.output_filename,
        warm=int(_newcomers_may_come(given)),
        verbose=bool(given.verbose),
        environment=tunables.variables(given, environ),
    )


def _newcomers_may_come(given: argparse.Namespace) -> bool:
    """A standby on each host, then: scripts allow a newcomer few seconds, and torch needs them."""
    return (
        given.host_discovery_script is not None and parse_command(tuple(given.command)) is not None
    )


def _sizes(given: argparse.Namespace, hosts: Hosts | None) -> tuple[int, int, int | None]:
    """How many at the start, at least, and at most."""
    np, least, most = given.num_proc, given.min_num_proc, given.max_num_proc
    if not is_elastic(given):
        _check_room(np, hosts)
        return np, np, np
    least = np if least is None else least
    if least > np or (most is not None and np > most):
        shown = "unbounded" if most is None else most
        raise UsageError(
            f"wanted --min-np <= -np <= --max-np, got --min-np {least}, -np {np}, --max-np {shown}"
        )
    _check_room(least, hosts)
    if hosts is not None:  # fixed, so what there will be is known
        np = min(max(np, sum(hosts.values())), most or UNBOUNDED)
    return np, least, most


def _hosts(given: argparse.Namespace) -> Hosts | None:
    """Those that were named; None if none were."""
    if given.hostfile is not None:
        return read_hostfile(given.hostfile, given.slots or 1)
    if given.hosts is None:
        return None
    if any(":" not in item for item in given.hosts.split(",")):
        raise JobFailed(messages.INVALID_HOSTS)
    try:
        return parse_hosts(given.hosts, 1)
    except UsageError:
        raise JobFailed(messages.INVALID_HOSTS) from None


def _check_room(np: int, hosts: Hosts | None) -> None:
    slots = None if hosts is None else sum(hosts.values())
    if slots is not None and slots < np:
        raise JobFailed(messages.TOO_MANY.format(np=np, slots=slots))


def _check_cooldown(given: argparse.Namespace) -> None:
    if given.cooldown_range is None:
        return
    low, high = given.cooldown_range
    if low < LOWEST_COOLDOWN:
        raise JobFailed(messages.COOLDOWN_LOW.format(value=low, bound=LOWEST_COOLDOWN))
    if high > HIGHEST_COOLDOWN:
        raise JobFailed(messages.COOLDOWN_HIGH.format(value=high, bound=HIGHEST_COOLDOWN))


def _seconds(given: float | None, what: str, default: float, environ: Mapping[str, str]) -> float:
    """The flag, the variable, or what it is without either."""
    name = f"HOROVOD_{what}_TIMEOUT"
    if given or name not in environ:
        return given or default
    if not environ[name].isdecimal() or not int(environ[name]):
        raise UsageError(f"{name} wants a number of seconds, 1 or more, got {environ[name]!r}")
    return float(environ[name])
