"""What `scaleout`, `scalein` and `resize` share: asking for another size, and following it.

The server checks the wish and its words are passed on. Whoever waits hears what became of it: the
exit code is 0 only if the training goes on with the new size.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from midflight import durations, long_poll
from midflight.arguments import offer
from midflight.cli import flags, job_types, jobs, messages, output
from midflight.cli.cluster import connect
from midflight.cli.long_poll import on_interrupt
from midflight.cli.progress import Progress
from midflight.deadlines import RESIZE
from midflight.errors import JobFailed, NotFound, UsageError
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import OperationView
from midflight.quantities import counted

_NO_MEANING = ("--script", "--env", "--retry")


def run(kind: str, argv: Sequence[str]) -> int:
    """`scaleout etjob ...` or `scalein etjob ...`."""
    options = parser(kind).read(argv)
    if job_types.canonical(options.type) != "etjob":
        raise UsageError(
            f"{kind} is for an etjob (et), got {options.type!r}; "
            "`resize JOB --to N` is for any elastic job"
        )
    if not options.name:
        raise UsageError('required flag(s) "name" not set')
    if options.count is not None and options.count < 1:
        raise UsageError(f"--count is invalid: wanted at least 1, got {options.count}")
    _note(options)
    names = _names(getattr(options, "pod_names", []))
    wish = {
        "kind": kind,
        "count": options.count if options.count is not None else len(names) or 1,
        "timeout": options.timeout,
        "names": names,
        "partial": options.partial,
    }
    return ask(options, options.name, wish)


def ask(options: argparse.Namespace, job: str, wish: Mapping[str, Any]) -> int:
    client = connect()
    operation = _request(client, options.namespace, job, wish)
    name, kind = operation["id"], operation["kind"]
    said = False
    if not options.wait:
        said = output.data(options.output, operation, [name])
    if not said and options.output in ("", "wide"):
        messages.created(f"{kind}.kai.alibabacloud.com/{name}")
    messages.info(f"The {kind} job {name} has been submitted successfully")
    return _outcome(client, options, job, operation) if options.wait else 0


def _request(
    client: ClusterApi, namespace: str, job: str, wish: Mapping[str, Any]
) -> OperationView:
    try:
        return client.scale(namespace, job, wish)
    except NotFound:
        jobs.check(client, namespace, job)
        raise


def _outcome(
    client: ClusterApi, options: argparse.Namespace, job: str, operation: OperationView
) -> int:
    ended = follow(client, options.namespace, job, operation)
    if ended["progress"] != "succeeded":
        output.data(options.output, ended, [ended["id"]])
        raise JobFailed(ended["message"] or f"{ended['id']} has failed")
    if not output.data(options.output, ended, [ended["id"]]):
        print(ended["message"] or f"{job} has {counted(ended['to'], 'worker')} now")
    return 0


def follow(client: ClusterApi, namespace: str, job: str, operation: OperationView) -> OperationView:
    """The operation when it has ended, by the word of whoever carries it out."""
    name = operation["id"]
    goes_on = (
        f"The {operation['kind']} job {name} goes on; `{messages.program()} get {job}` shows it"
    )
    with on_interrupt(goes_on), Progress(_line(operation)) as progress:
        for changed in long_poll.changes(client, connect, namespace, job, operation):
            operation = changed
            progress.text = _line(operation)
    return operation


def _line(operation: OperationView) -> str:
    detail = f": {operation['message']}" if operation["message"] else ""
    sizes = f"{operation['from']} to {counted(operation['to'], 'worker')}"
    return f"{operation['kind']} from {sizes}, {operation['progress']}{detail}"


def _note(options: argparse.Namespace) -> None:
    used = [flag for flag in _NO_MEANING if getattr(options, flag[2:])]
    if used:
        messages.info(f"{', '.join(used)}: not needed here, the training itself takes the change")


def _names(given: Sequence[str]) -> list[str]:
    names = [name.strip() for text in given for name in text.split(",")]
    if given and not all(names):
        raise UsageError(f"wanted --pod-names NAME,NAME..., got {','.join(given)!r}")
    return list(dict.fromkeys(names))


def add_wishes(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "-t",
        "--timeout",
        type=durations.parse,
        default=RESIZE,
        metavar="TIME",
        help="undo the change after this time (default 1m)",
    )
    flags.switch(
        made,
        "--partial",
        help="keep the workers that were ready in time, instead of all or nothing",
    )
    output.add(made)


def parser(kind: str) -> flags.VerbParser:
    change = "add" if kind == "scaleout" else "remove"
    made = flags.VerbParser(kind, f"{change.title()}s workers while the job trains.")
    offer(made.add_argument("type", metavar="etjob", help="type of the job (or et)"), ["etjob"])
    made.add_argument("--name", metavar="JOB", default="", help="name of the job (required)")
    made.add_argument(
        "--count", type=flags.number, metavar="N", help=f"number of workers to {change} (default 1)"
    )
    if kind == "scalein":
        made.add_argument(
            "--pod-names",
            action="append",
            default=[],
            metavar="NAME,...",
            help="remove these workers (default: the newest)",
        )
    flags.switch(made, "--wait", help="wait for the outcome; the exit code says what it is")
    add_wishes(made)
    made.add_argument("--script", default="", help=argparse.SUPPRESS)
    made.add_argument("--retry", type=flags.number, default=0, help=argparse.SUPPRESS)
    made.add_argument("-e", "--env", action="append", default=[], help=argparse.SUPPRESS)
    return made
