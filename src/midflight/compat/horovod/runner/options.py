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
from midflight.run import options as run_options
from midflight.run.hosts import Hosts, parse_hosts, read_hostfile
from midflight.run.options import Options

LOWEST_COOLDOWN, HIGHEST_COOLDOWN = 1, 3600  # seconds
_SAME = {  # destination: the flag of `midflight run`
    "reset_limit": "--reset-limit",
    "slots": "--slots-per-host",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "host_discovery_script": "--host-discovery-script",
    "output_filename": "--output-dir",
}


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
    hosts = _hosts(given)
    made = run_options.parse(_words(given, hosts, environ), environ)
    elastic = is_elastic(given)
    spec = replace(
        made.spec,
        dialect=dialect(
            elastic, takes_all_slots=elastic and made.hosted is None, level=given.log_level or ""
        ),
        environment=tunables.variables(given, environ),
    )
    return replace(made, spec=spec)


def dialect(elastic: bool, *, takes_all_slots: bool, level: str = "") -> Dialect:
    """How horovodrun treats its processes, and what it tells them and their user."""
    return Dialect(
        fixed_size=not elastic,
        takes_all_slots=takes_all_slots,
        environment={**_ENVIRONMENT, **({"HOROVOD_ELASTIC": "1"} if elastic else {})},
        log_level=level,
        output_folder="rank.{rank:0{width}d}",
        ended_badly="Process {rank} exit with status code {status}.",
    )


def _words(given: argparse.Namespace, hosts: Hosts | None, environ: Mapping[str, str]) -> list[str]:
    """The command line of `midflight run` that means the same."""
    words = _sizes(given, hosts)
    for name, flag in _SAME.items():
        if getattr(given, name) is not None:
            words += [flag, str(getattr(given, name))]
    words += ["--start-timeout", _seconds(given.start_timeout, "START", 30, environ)]
    words += ["--elastic-timeout", _seconds(given.elastic_timeout, "ELASTIC", 600, environ)]
    if given.cooldown_range is not None:
        words += ["--cooldown", *map(str, given.cooldown_range)]
    words += ["--timestamps"] if given.timestamps else []
    words += ["--verbose"] if given.verbose else []
    return [*words, "--", *given.command]


def _sizes(given: argparse.Namespace, hosts: Hosts | None) -> list[str]:
    np, least, most = given.num_proc, given.min_num_proc, given.max_num_proc
    if not is_elastic(given):
        _check_room(np, hosts)
        return ["-np", str(np), "--min-np", str(np), "--max-np", str(np)]
    least = np if least is None else least
    if least > np or (most is not None and np > most):
        shown = "unbounded" if most is None else most
        raise UsageError(
            f"wanted --min-np <= -np <= --max-np, got --min-np {least}, -np {np}, --max-np {shown}"
        )
    _check_room(least, hosts)
    if hosts is not None:  # fixed, so what there will be is known
        np = min(max(np, sum(hosts.values())), most or run_options.UNBOUNDED)
    bound = ["--max-np", str(most)] if most is not None else []
    return ["-np", str(np), "--min-np", str(least), *bound]


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


def _seconds(given: int | None, what: str, default: int, environ: Mapping[str, str]) -> str:
    """The flag, the variable, or what it is without either."""
    if given:
        return str(given)
    name = f"HOROVOD_{what}_TIMEOUT"
    text = environ.get(name, str(default))
    if not text.isdecimal() or not int(text):
        raise UsageError(f"{name} wants a number of seconds, 1 or more, got {text!r}")
    return text
