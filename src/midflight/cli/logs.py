"""`midflight logs JOB`: what its instances have printed, the chief's where nothing is said."""

import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

from midflight.cli import durations, flags, jobs, moments, program
from midflight.client import Client
from midflight.errors import ConnectionLost, NotFound, UsageError

_SINCE = re.compile(r"(\d+h)?(\d+m)?(\d+s)?")


def main(argv: Sequence[str]) -> int:
    from midflight.cli.cluster import connect

    options = parser().read(argv)
    if options.all and options.instance:
        raise UsageError("wanted --all or --instance, got both")
    query = _query(options)
    client = connect()
    if options.type:
        _check(client, options)
    try:
        return _print(client, options, query)
    except NotFound:
        _check(client, options)
        raise


def _query(options: Namespace) -> dict[str, str]:
    query = {
        "instance": options.instance,
        "follow": options.follow,
        "tail": options.tail,
        "since": _since(options),
        "timestamps": options.timestamps,
        "all": options.all,
    }
    return {key: _text(value) for key, value in query.items() if value not in ("", False, -1, 0.0)}


def _text(value: object) -> str:
    return "true" if value is True else str(value)


def _since(options: Namespace) -> float:
    """Seconds since the epoch, 0.0 for all of it."""
    if options.since and options.since_time:
        raise UsageError("wanted --since or --since-time, got both")
    if options.since_time:
        return moments.epoch(options.since_time)
    if not options.since:
        return 0.0
    if not _SINCE.fullmatch(options.since):
        raise UsageError(
            "failed to parse since seconds,invalid format,should like: ['1h','1m','1s','1h1m1s'...]"
        )
    return time.time() - durations.parse(options.since)


def _print(client: Client, options: Namespace, query: dict[str, str]) -> int:
    try:
        for piece in _pieces(client.logs(options.namespace, options.job, query)):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _pieces(source: Iterator[bytes]) -> Iterator[bytes]:
    from http.client import HTTPException

    try:
        yield from source
    except (OSError, HTTPException) as error:
        raise ConnectionLost(f"the server went away while it sent the log: {error}") from None


def _check(client: Client, options: Namespace) -> None:
    """Say what of it is missing, in the words users know."""
    try:
        job = jobs.find(client, options.namespace, options.job, options.type)
    except NotFound:
        raise NotFound(
            f"training job not found,please use '{program.name()} list' to make sure job is existed"
        ) from None
    if options.instance:
        jobs.instance(job, options.instance)


def parser() -> flags.VerbParser:
    made = flags.VerbParser("logs", "Prints what the instances of a job have printed.")
    made.add_argument("job", metavar="JOB", help="its name")
    flags.switch(made, "-f", "--follow", help="go on until the job is over")
    flags.switch(made, "--all", help="of all instances, each line with its instance's name")
    flags.switch(made, "--timestamps", help="each line with its time")
    add = made.add_argument
    add("-i", "--instance", default="", metavar="NAME", help="of this one (default: the chief)")
    add("-t", "--tail", type=flags.number, default=-1, metavar="N", help="the last lines only")
    add("--since", default="", metavar="TIME", help="what is younger, such as 1h or 5m30s")
    add("--since-time", default="", metavar="MOMENT", help="what came after it (RFC 3339)")
    add("-c", "--container", default="", metavar="NAME", help="ignored: there are no containers")
    jobs.add_type(made)
    return made
