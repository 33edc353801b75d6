"""`midflight prune --since AGE`: deletes jobs, or with --runs runs, that ended so long ago.

Nothing else is touched: a run that was interrupted can still be taken up, and keeps its folder.
"""

import os
import time
from collections.abc import Sequence

from midflight import durations
from midflight.cli import flags, output
from midflight.cli.cluster import connect
from midflight.cli.runs import known_runs
from midflight.errors import UsageError
from midflight.run.claim import remove_ended
from midflight.rundir import RunDir


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.since in ("", "-1"):
        raise UsageError(
            "you need to specify the relative duration live time of the job that need to be "
            "cleaned by --since. Like --since 10h"
        )
    since = durations.parse(options.since)
    if options.runs:
        return _prune_runs(since, options.output)
    gone = connect().prune(options.scope, since)
    if not output.data(options.output, gone, (job["name"] for job in gone)):
        for job in gone:
            age = durations.shown(job["age"])
            print(f"Delete {job['type']} {job['name']} with Age {age}")
        if not gone:
            print("No job need to be deleted")
    return 0


def _prune_runs(since: float, format_: str) -> int:
    gone: dict[str, float] = {}
    for name in known_runs():
        ended = remove_ended(RunDir.of(name, os.environ), time.time() - since)
        if ended is not None:
            gone[name] = time.time() - ended
    if not output.data(format_, [{"name": n, "age": age} for n, age in gone.items()], gone):
        for name, age in gone.items():
            print(f"Delete run {name} with Age {durations.shown(age)}")
        if not gone:
            print("No run needs to be deleted")
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser("prune", "Deletes jobs that finished some time ago.")
    made.add_argument(
        "-s", "--since", default="", metavar="TIME", help="how long ago they finished (required)"
    )
    flags.add_all_namespaces(made)
    flags.switch(made, "--runs", help="delete the folders of runs, not jobs")
    output.add(made)
    return made
