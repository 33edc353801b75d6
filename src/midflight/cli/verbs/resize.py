"""`midflight resize RUN|JOB`: asks for another number of members, and tells what came of it.

Of a job it is the number of workers, and the server is asked. Progress goes to stderr, the outcome
to stdout; the exit code is 0 only if it was done.
"""

import argparse
import asyncio
from collections.abc import Sequence

from midflight.arguments import count_from
from midflight.cli import flags, messages, scale_operations
from midflight.cli.cluster import is_kubernetes
from midflight.cli.runs import choose_training, client_of, is_live_run
from midflight.console import say
from midflight.coordinator.client import Patience
from midflight.deadlines import RESIZE_ANSWER, RESTART
from midflight.errors import JobFailed, Unreachable, UsageError
from midflight.protocol.messages import ResizeRequested
from midflight.run.record import OVER, last_status
from midflight.rundir import RunDir

PATIENCE = Patience(reach=RESTART, answer=RESIZE_ANSWER)


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    _check(options)
    name, namespace = options.name, options.said_namespace
    if is_kubernetes() and not is_live_run(name, namespace):
        return _resize_job(options, options.namespace)
    training = choose_training(name, namespace)
    if training.namespace is not None:
        return _resize_job(options, training.namespace)
    return _resize_run(options, training.folder)


def _resize_job(options: argparse.Namespace, namespace: str) -> int:
    if options.to is None:
        raise UsageError(
            f"{options.name} is a job, which has workers: give --to N, or use "
            f"`{messages.program()} scaleout` or `scalein` (its --pod-names chooses them)"
        )
    options.namespace = namespace
    wish = {"to": options.to, "timeout": options.timeout, "partial": options.partial}
    return scale_operations.ask(options, options.name, wish)


def _resize_run(options: argparse.Namespace, folder: RunDir) -> int:
    request = _request(options)
    last = last_status(folder)
    if last is not None and last.phase in OVER:
        raise JobFailed(f"the run {options.name} is over ({last.phase}); nothing to resize")
    client = client_of(folder)
    try:
        if not options.wait:
            asyncio.run(client.ask(request))
            return 0
        ended = asyncio.run(client.resize(request, say, PATIENCE))
    except Unreachable as error:
        see = f"`{messages.program()} status {options.name}` shows how it stands"
        raise JobFailed(f"{error}; {see}") from None
    if not ended.ok:
        raise JobFailed(ended.detail)
    print(ended.detail)
    return 0


def _check(options: argparse.Namespace) -> None:
    others = bool(options.add or options.remove or options.remove_member)
    if (options.to is not None) == others:
        raise UsageError(
            "wanted either --to N, or --add N, --remove N or --remove-member NAME; "
            f"got {'both' if others else 'none of them'}"
        )


def _request(options: argparse.Namespace) -> ResizeRequested:
    names = tuple(dict.fromkeys(options.remove_member))
    if options.partial or options.output:
        raise UsageError("--partial and -o are for a job, and this is a run")
    return ResizeRequested(options.to, options.add, options.remove, names, options.timeout)


def parser() -> flags.VerbParser:
    made = flags.VerbParser("resize", "Changes the number of members, or of a job's workers.")
    add, count = made.add_argument, count_from(1)
    add("name", metavar="RUN|JOB", help="the name of the run or job")
    add("--to", type=count, metavar="N", help="number of members, or workers, afterwards")
    add("--add", type=count, default=0, metavar="N", help="number of members to add to a run")
    add(
        "--remove",
        type=count,
        default=0,
        metavar="N",
        help="number of members to remove from a run, newest first",
    )
    add(
        "--remove-member",
        action="append",
        default=[],
        metavar="NAME",
        help="remove this member of a run (may be repeated, and combined with --add)",
    )
    flags.switch(made, "--wait", help="wait for the outcome (default: yes)", default=True)
    scale_operations.add_wishes(made)
    return made
