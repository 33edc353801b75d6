"""`midflight wait JOB --for running|finished|gone`: the exit code is 0 once it is so.

A job that has failed will never run, and to wait for its end is answered by 1 as well.
"""

from collections.abc import Sequence

from midflight import durations
from midflight.cli import flags, jobs, output
from midflight.cli.cluster import connect
from midflight.cli.long_poll import until
from midflight.errors import JobFailed

_BAD = ("FAILED", "MAX_WAIT_TIME_EXCEEDED")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    client = connect()
    if options.state != "gone":
        jobs.find(client, options.namespace, options.job)
    job = until(client, options.namespace, options.job, options.state, options.timeout)
    if job is None or options.state == "gone":
        print(f"{options.job} is gone")
        return 0
    if not output.data(options.output, job, [job["name"]]):
        print(f"{job['name']} is {job['status']}")
    if job["status"] in _BAD:
        raise JobFailed(f"{job['name']} has failed: {job['reason'] or 'see its log'}")
    return 0


def parser() -> flags.VerbParser:
    made = flags.VerbParser("wait", "Waits for a job.")
    made.add_argument("job", metavar="JOB", help="name of the job")
    made.add_argument(
        "--for",
        dest="state",
        choices=("running", "finished", "gone"),
        default="finished",
        help="what to wait for (default finished)",
    )
    made.add_argument(
        "--timeout",
        type=durations.parse,
        default=0.0,
        metavar="TIME",
        help="how long to wait (default: forever)",
    )
    output.add(made)
    return made
