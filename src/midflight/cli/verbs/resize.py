"""`midflight resize RUN`: asks for another number of members, and tells what came of it.

A name that is a job of the server's means that job, and its workers. Progress goes to stderr, the
outcome to stdout; the exit code is 0 only if it was done.
"""

import argparse
from collections.abc import Sequence

from midflight.arguments import Parser, count_from, seconds
from midflight.cli import flags, program, scale_operations
from midflight.cli.runs import call_run, find_run, names_a_job
from midflight.console import say
from midflight.deadlines import RESIZE, RESIZE_LATE
from midflight.errors import ConnectionLost, JobFailed, ProtocolError, UsageError
from midflight.protocol.messages import Progress, RequestEnded, ResizeRequested, Status
from midflight.protocol.wire import SyncWire


def main(argv: Sequence[str]) -> int:
    if names_a_job(argv):
        return _resize_job(argv)
    options = parser().parse_args(argv)
    request = _request(options)
    wire = call_run(find_run(options.run))
    if isinstance(wire, Status):
        raise JobFailed(f"the run {options.run} is over ({wire.phase}); nothing to resize")
    try:
        wire.send(request)
        if not options.wait:
            return 0
        wire.sock.settimeout(options.timeout + RESIZE_LATE)
        ended = _await_end(wire, options.run)
    finally:
        wire.close()
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


def _await_end(wire: SyncWire, run: str) -> RequestEnded:
    see = f"see what became of it with `midflight status {run}`"
    while True:
        try:
            message = wire.receive()
        except TimeoutError:
            raise JobFailed(f"the coordinator did not answer in time; {see}") from None
        except ConnectionLost:
            raise JobFailed(f"the coordinator went away before it answered; {see}") from None
        match message:
            case Progress(line):
                say(line)
            case RequestEnded():
                return message
            case _:
                raise ProtocolError(f"a {type(message).__name__} is no answer to a resize")


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
