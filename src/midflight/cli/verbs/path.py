"""`midflight path JOB [INSTANCE]`: the folder that holds all there is of it."""

from collections.abc import Sequence
from pathlib import Path

from midflight.cli import flags, jobs, messages
from midflight.cli.cluster import connect
from midflight.errors import UsageError


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    job = jobs.find(connect(), options.namespace, options.job)
    if not job["folder"]:
        raise UsageError(
            f"the job {options.job} is on a cluster, and has no folder here; look into its pods "
            f"with `{messages.program()} attach {options.job}`"
        )
    folder = Path(job["folder"])
    if options.instance:
        folder = folder / "instances" / jobs.instance(job, options.instance)["name"]
    print(folder)
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser("path", "Prints the folder of a job, or of one of its instances.")
    made.add_argument("job", metavar="JOB", help="name of the job")
    made.add_argument(
        "instance", metavar="INSTANCE", nargs="?", default="", help="one of its instances"
    )
    return made
