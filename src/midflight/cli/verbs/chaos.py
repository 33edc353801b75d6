"""`midflight chaos WHAT JOB [INSTANCE]`: rehearses a failure, of the newest worker by default.

`chaos monkey` strikes again and again, and has a file of its own.
"""

import importlib
from collections.abc import Sequence

from midflight.arguments import offer
from midflight.cli import common_flags, flags, jobs
from midflight.cli.cluster import connect
from midflight.errors import Refused
from midflight.protocol.views import JobView

# what: what has happened afterwards
WHAT = {
    "kill": "was killed",
    "stop": "stands still",
    "cont": "goes on",
    "cut": "was cut off from the others",
}


MONKEY = "midflight.cli.verbs.chaos_monkey"


def main(argv: Sequence[str]) -> int:
    rest = common_flags.take_more(argv)
    if rest and rest[0] == "monkey":
        code: int = importlib.import_module(MONKEY).main(rest[1:])
        return code
    options = parser().read(rest)
    client = connect()
    job = jobs.find(client, options.namespace, options.job)
    name = jobs.instance(job, options.instance)["name"] if options.instance else newest(job)
    client.chaos(options.namespace, options.job, options.what, name)
    print(f"{name} {WHAT[options.what]}")
    return 0


def newest(job: JobView) -> str:
    """The running worker that came last; the chief if there is none."""
    running = [each for each in job["instances"] if each["status"] == "Running"]
    if not running:
        raise Refused(f"no instance of {job['name']} is running")
    workers = [each for each in running if each["role"] == "worker"] or running
    return workers[-1]["name"]


def parser() -> flags.VerbParser:
    made = flags.VerbParser("chaos", "Rehearses a failure.")
    made.epilog = f"`{made.prog} monkey RUN|JOB --help`: strikes again and again, and an audit."
    what = made.add_argument(
        "what", choices=tuple(WHAT), help="kill it, stop it, cont(inue) it, or cut its connections"
    )
    offer(what, (*WHAT, "monkey"))
    made.add_argument("job", metavar="JOB", help="name of the job")
    made.add_argument(
        "instance",
        metavar="INSTANCE",
        nargs="?",
        default="",
        help="which instance (default: the newest worker)",
    )
    return made
