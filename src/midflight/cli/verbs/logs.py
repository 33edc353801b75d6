"""`midflight logs JOB`: what its instances have printed, the chief's where nothing is said."""

import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence

from midflight import durations
from midflight.cli import flags, jobs, messages, output
from midflight.cli.cluster import connect, is_kubernetes
from midflight.cli.long_poll import until
from midflight.errors import ConnectionLost, NotFound, Refused, UsageError
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import InstanceView, JobView
from midflight.terminal import LogFilter

_SINCE = re.compile(r"(\d+h)?(\d+m)?(\d+s)?")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.all and options.instance:
        raise UsageError("wanted --all or --instance, got both")
    if options.previous:
        _check_previous(options)
    query = _query(options)
    client = connect()
    if is_kubernetes() and options.container:
        query["container"] = options.container
    if options.follow:
        _await_begin(client, options)
    try:
        if options.type:
            _find(client, options)
        if not _print(client, options, query):
            _explain(client, options)
    except NotFound:
        if not options.previous:
            _explain(client, options)
        raise
    return 0


def _check_previous(options: Namespace) -> None:
    for name in ("follow", "timestamps", "since", "since_time", "container"):
        if getattr(options, name):
            raise UsageError(f"wanted --previous or --{name.replace('_', '-')}, got both")
    if not is_kubernetes():
        raise UsageError(
            "--previous is for a cluster; on this machine the log of an instance goes on over all "
            "its attempts"
        )


def _query(options: Namespace) -> dict[str, str]:
    query = {
        "instance": options.instance,
        "follow": options.follow,
        "tail": options.tail,
        "since": _since(options),
        "timestamps": options.timestamps,
        "all": options.all,
        "previous": options.previous,
    }
    return {key: _text(value) for key, value in query.items() if value not in ("", False, -1, 0.0)}


def _text(value: object) -> str:
    return "true" if value is True else str(value)


def _since(options: Namespace) -> float:
    """Seconds since the epoch, 0.0 for all of it."""
    if options.since and options.since_time:
        raise UsageError("wanted --since or --since-time, got both")
    if options.since_time:
        return output.epoch(options.since_time)
    if not options.since:
        return 0.0
    if not _SINCE.fullmatch(options.since):
        raise UsageError(
            "failed to parse since seconds,invalid format,should like: ['1h','1m','1s','1h1m1s'...]"
        )
    return time.time() - durations.parse(options.since)


def _print(client: ClusterApi, options: Namespace, query: dict[str, str]) -> bool:
    """Whether there was anything."""
    said = False
    try:
        pieces = _pieces(client.logs(options.namespace, options.job, query))
        if sys.stdout.isatty() and not options.raw:
            pieces = LogFilter().pass_on(pieces)
        for piece in filter(None, pieces):
            said = True
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return said


def _pieces(source: Iterator[bytes]) -> Iterator[bytes]:
    from http.client import HTTPException

    try:
        yield from source
    except (OSError, HTTPException) as error:
        raise ConnectionLost(f"the server went away while it sent the log: {error}") from None


def _find(client: ClusterApi, options: Namespace) -> tuple[JobView, list[InstanceView]]:
    """The job and those of its instances that are meant; or what is missing, in known words."""
    job = jobs.check(client, options.namespace, options.job, options.type)
    if options.instance:
        jobs.instance(job, options.instance)
    wanted = options.instance or job["chiefName"]
    return job, [each for each in job["instances"] if options.all or each["name"] == wanted]


def _await_begin(client: ClusterApi, options: Namespace) -> None:
    """A job has no instances before its code is there; then there is nothing yet to follow."""
    job, chosen = _find(client, options)
    if job["endTime"] or any(each["startTime"] for each in chosen):
        return
    messages.info(f"{_absent(job, chosen)}; its log follows once it runs")
    if not chosen:
        until(client, options.namespace, options.job, "running", 0.0)


def _explain(client: ClusterApi, options: Namespace) -> None:
    """Why there is nothing: whoever has not started cannot have said anything."""
    job, chosen = _find(client, options)
    if not any(each["startTime"] for each in chosen):
        raise Refused(_absent(job, chosen))


def _absent(job: JobView, chosen: Sequence[InstanceView]) -> str:
    if not chosen:
        reason = job["reason"]
        return f"not found instances of the job {job['name']}{f': {reason}' if reason else ''}"
    reason = chosen[0]["reason"] or job["reason"]
    return f"instance {chosen[0]['name']} is not running{f': {reason}' if reason else ' yet'}"


def parser() -> flags.VerbParser:
    made = flags.VerbParser("logs", "Prints the output of a job's instances.")
    made.add_argument("job", metavar="JOB", help="name of the job")
    flags.switch(made, "-f", "--follow", help="follow it until the job has ended")
    flags.switch(made, "--all", help="show all instances, with their names")
    flags.switch(made, "-p", "--previous", help="what is kept of the pod that failed before")
    flags.switch(made, "--raw", help="pass control characters on to a terminal as they are")
    flags.switch(made, "--timestamps", help="show the time of each line")
    add = made.add_argument
    add("-i", "--instance", default="", metavar="NAME", help="which instance (default: the chief)")
    add("-t", "--tail", type=flags.number, default=-1, metavar="N", help="only the last N lines")
    add("--since", default="", metavar="TIME", help="only newer lines, such as 1h or 5m30s")
    add("--since-time", default="", metavar="MOMENT", help="only later lines (RFC 3339)")
    add("-c", "--container", default="", metavar="NAME", help="container, on a cluster")
    jobs.add_type(made)
    return made
