"""`midflight down`: ends the server. Jobs go on, unless `--jobs` deletes them first."""

import argparse
import os
from collections.abc import Sequence

from midflight.arguments import Parser, seconds
from midflight.cli import messages
from midflight.cli.cluster import connect, connect_if_running
from midflight.console import say
from midflight.deadlines import SERVER_END
from midflight.errors import NotFound, TimedOut
from midflight.home import home
from midflight.protocol.cluster_api import ClusterApi
from midflight.quantities import counted
from midflight.server.startup import wait_for_end

FINISHED = ("SUCCEEDED", "FAILED", "MAX_WAIT_TIME_EXCEEDED")


def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    # Jobs may have outlived their server, and only a server can end them.
    client = connect() if options.jobs else connect_if_running()
    if client is None:
        say("no server is running")
        return 0
    if options.jobs:
        _delete_all(client, options.timeout)
    left = sum(n for phase, n in client.status()["jobs"].items() if phase not in FINISHED)
    client.stop()
    _await_end()
    say(f"the server has ended; {_go_on(left)}")
    return 0


def _delete_all(client: ClusterApi, timeout: float) -> None:
    jobs = [(job["namespace"], job["name"]) for job in client.jobs("*")]
    for namespace, name in jobs:
        try:
            client.delete(namespace, name)
        except NotFound:
            continue  # gone meanwhile
    for namespace, name in jobs:
        client.wait(namespace, name, "gone", timeout)
    say(f"{len(jobs)} {'job was' if len(jobs) == 1 else 'jobs were'} deleted")


def _await_end() -> None:
    if not wait_for_end(home(os.environ), SERVER_END):
        raise TimedOut(f"the server did not end within {SERVER_END:g} s; its log is server.log")


def _go_on(count: int) -> str:
    return f"{counted(count, 'job')} still running" if count else "no job was running"


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"{messages.program()} down", description="Stops your server; jobs keep running."
    )
    parser.add_argument("--jobs", action="store_true", help="delete all jobs first")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=60.0,
        help="how long to wait for each job to be gone, with --jobs (default 60)",
    )
    return parser
