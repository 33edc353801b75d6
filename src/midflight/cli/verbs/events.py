"""`midflight events [JOB]`: what has happened, to one job or to all."""

from collections.abc import Sequence

from midflight.cli import flags, jobs, output
from midflight.cli.cluster import connect
from midflight.cli.job_tables import event_row
from midflight.cli.output import table
from midflight.errors import NotFound

_COLUMNS = ("SOURCE", "TYPE", "AGE", "MESSAGE")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    try:
        found = connect().events(options.scope, options.job)
    except NotFound:
        raise NotFound(jobs.missing(options.scope, options.job)) from None
    if output.data(options.output, found, (each["source"] for each in found)):
        return 0
    if options.job:
        print(table(_COLUMNS, [event_row(each) for each in found]))
    else:
        rows = [(each["namespace"], each["job"] or "-", *event_row(each)) for each in found]
        print(table(("NAMESPACE", "JOB", *_COLUMNS), rows))
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser("events", "Shows events, oldest first.")
    made.add_argument(
        "job", metavar="JOB", nargs="?", default="", help="only the events of this job"
    )
    flags.add_all_namespaces(made)
    output.add(made)
    return made
