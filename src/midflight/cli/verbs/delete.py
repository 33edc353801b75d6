"""`midflight delete JOB...`: each name is handled; the exit code is 1 if one was not there."""

import argparse
from collections.abc import Sequence

from midflight import durations
from midflight.cli import flags, jobs, messages
from midflight.cli.cluster import connect
from midflight.cli.long_poll import until
from midflight.deadlines import JOB_GONE
from midflight.errors import NotFound
from midflight.protocol.cluster_api import ClusterApi


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    client = connect()
    names = list(dict.fromkeys(options.jobs))
    going = [name for name in names if _ask(client, options, name)]
    for name in going:
        if options.wait:
            left = f"The training job {name} is being deleted, and will be gone in a moment"
            until(client, options.namespace, name, "gone", options.timeout, left)
        messages.info(f"The training job {name} has been deleted successfully")
    return 0 if len(going) == len(names) else 1


def _ask(client: ClusterApi, options: argparse.Namespace, name: str) -> bool:
    """False if there is no such job."""
    try:
        if options.type:
            jobs.find(client, options.namespace, name, options.type)
        client.delete(options.namespace, name)
    except NotFound:
        messages.info(f"The training job '{name}' does not exist,skip to delete it")
        return False
    return True


def parser() -> flags.VerbParser:
    made = flags.VerbParser("delete", "Deletes jobs, with everything that belongs to them.")
    made.add_argument("jobs", metavar="JOB", nargs="+", help="names of the jobs")
    jobs.add_type(made)
    flags.switch(made, "--wait", help="wait until they are gone (default: yes)", default=True)
    made.add_argument(
        "--timeout",
        type=durations.parse,
        default=JOB_GONE,
        metavar="TIME",
        help="how long to wait (2m)",
    )
    return made
