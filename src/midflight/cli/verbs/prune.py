"""`midflight prune --since AGE`: deletes jobs that ended so long ago; nothing else is touched."""

from collections.abc import Sequence

from midflight import durations
from midflight.cli import flags, output
from midflight.cli.cluster import connect
from midflight.errors import UsageError


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.since in ("", "-1"):
        raise UsageError(
            "you need to specify the relative duration live time of the job that need to be "
            "cleaned by --since. Like --since 10h"
        )
    gone = connect().prune(options.scope, durations.parse(options.since))
    if not output.data(options.output, gone, (job["name"] for job in gone)):
        for job in gone:
            age = durations.shown(job["age"])
            print(f"Delete {job['type']} {job['name']} with Age {age}")
        if not gone:
            print("No job need to be deleted")
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser("prune", "Deletes jobs that finished some time ago.")
    made.add_argument(
        "-s", "--since", default="", metavar="TIME", help="how long ago they finished (required)"
    )
    flags.add_all_namespaces(made)
    output.add(made)
    return made
