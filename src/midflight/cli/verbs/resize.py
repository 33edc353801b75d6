"""`midflight resize RUN`: asks for another number of members, and tells what came of it.

A name that is a job of the server's means that job, and its workers. Progress goes to stderr, the
outcome to stdout; the exit code is 0 only if it was done.
"""

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial

from midflight.arguments import Parser, count_from, seconds
from midflight.cli import flags, program, scale_operations
from midflight.cli.runs import OVER, find_run, last_status, names_a_job
from midflight.console import say
from midflight.coordinator.client import CoordinatorClient, Patience
from midflight.deadlines import RESIZE
from midflight.errors import JobFailed, Unreachable, UsageError
from midflight.protocol.messages import ResizeRequested
from midflight.protocol.wire import AsyncWire
from midflight.run.dial import call_async
from midflight.rundir import RunDir

PATIENCE = Patience(reach=5.0, answer=60.0)  # a coordinator that dies is started again soon


def main(argv: Sequence[str]) -> int:
    if names_a_job(argv):
        return _resize_job(argv)
    options = parser().parse_args(argv)
    request = _request(options)
    client = CoordinatorClient(partial(_dial, find_run(options.run), options.run))
    try:
        if not options.wait:
            asyncio.run(client.ask(request))
            return 0
        ended = asyncio.run(client.resize(request, say, PATIENCE))
    except Unreachable as error:
        see = f"`{program.name()} status {options.run}` shows how it stands"
        raise JobFailed(f"{error}; {see}") from None
    if not ended.ok:
        raise JobFailed(ended.detail)
    print(ended.detail)
    return 0


def _resize_job(argv: Sequence[str]) -> int:
    options = _job_parser().read(argv)
    if options.to is None:
        raise UsageError('required flag(s) "to" not set')
    wish = {"to": options.to, "timeout": options.timeout, "partial": options.partial}
    return scale_operations.ask(options, options.job, wish)


def _request(options: argparse.Namespace) -> ResizeRequested:
    others = bool(options.add or options.remove or options.remove_member)
    if (options.to is not None) == others:
        raise UsageError(
            "wanted either --to N, or --add N, --remove N or --remove-member NAME; "
            f"got {'both' if others else 'none of them'}"
        )
    names = tuple(dict.fromkeys(options.remove_member))
    return ResizeRequested(options.to, options.add, options.remove, names, options.timeout)


async def _dial(folder: RunDir, run: str) -> AsyncWire:
    try:
        return await call_async(folder)
    except Unreachable:
        last = last_status(folder)
        if last is not None and last.phase in OVER:
            raise JobFailed(f"the run {run} is over ({last.phase}); nothing to resize") from None
        raise


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"{program.name()} resize",
        description="Changes the number of members while they train.",
        epilog="A job has workers instead: `resize JOB --help` shows what can be asked for them.",
    )
    add, count = parser.add_argument, count_from(1)
    add("run", metavar="RUN", help="the name of the run")
    add("--to", type=count, metavar="N", help="number of members afterwards")
    add("--add", type=count, default=0, metavar="N", help="number of members to add")
    add(
        "--remove",
        type=count,
        default=0,
        metavar="N",
        help="number of members to remove, newest first",
    )
    add(
        "--remove-member",
        action="append",
        default=[],
        metavar="NAME",
        help="remove this member (may be repeated, and combined with --add)",
    )
    add(
        "--timeout",
        type=seconds,
        default=RESIZE,
        metavar="S",
        help="take the change back after this time (default 60)",
    )
    add(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait for the outcome (default: yes)",
    )
    return parser


def _job_parser() -> flags.VerbParser:
    made = flags.VerbParser("resize", "Changes the number of workers while they train.")
    made.add_argument("job", metavar="JOB", help="name of the job")
    made.add_argument(
        "--to", type=flags.number, metavar="N", help="number of workers afterwards (required)"
    )
    flags.switch(made, "--wait", help="wait for the outcome (default: yes)", default=True)
    scale_operations.add_wishes(made)
    return made
