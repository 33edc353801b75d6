"""`midflight resize RUN`: asks for another number of members, and tells what came of it.

A name that is a job of the server's means that job, and its workers. Progress goes to stderr, the
outcome to stdout; the exit code is 0 only if it was done.
"""

import argparse
import asyncio
from collections.abc import Sequence
from functools import partial

from midflight.cli import program, resize_job
from midflight.cli.runs import OVER, find_run, last_status, names_a_job
from midflight.coordinator.client import CoordinatorClient, Patience
from midflight.errors import JobFailed, Unreachable, UsageError
from midflight.protocol.messages import ResizeRequested
from midflight.protocol.wire import AsyncWire
from midflight.run.arguments import Parser, count_from, say, seconds
from midflight.run.calling import call_async
from midflight.store.rundir import RunDir

PATIENCE = Patience(reach=5.0, answer=60.0)  # a coordinator that dies is started again soon


def main(argv: Sequence[str]) -> int:
    if names_a_job(argv):
        return resize_job.main(argv)
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
    add("--to", type=count, metavar="N", help="so many members in all")
    add("--add", type=count, default=0, metavar="N", help="so many more")
    add("--remove", type=count, default=0, metavar="N", help="so many fewer, the newest first")
    add(
        "--remove-member",
        action="append",
        default=[],
        metavar="NAME",
        help="this one leaves (may be repeated, and combined with --add)",
    )
    add("--timeout", type=seconds, default=60.0, metavar="S", help="then it is taken back (60)")
    add(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="for the outcome (default: yes)",
    )
    return parser
