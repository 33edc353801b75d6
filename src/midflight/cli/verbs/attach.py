"""`midflight attach JOB [-- COMMAND...]`: a command, or a shell, where the job's processes are.

On this machine it runs in the job's working directory, with the job's variables and programs; on a
cluster in the instance's pod, with this terminal. The exit code is the command's own.
"""

from collections.abc import Sequence

from midflight.cli import flags, jobs
from midflight.cli.cluster import connect


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    client = connect()
    job = jobs.find(client, options.namespace, options.job, options.type)
    name = jobs.instance(job, options.instance)["name"] if options.instance else job["chiefName"]
    return client.attach(job, name, options.container, [*options.command, *options.rest])


def parser() -> flags.VerbParser:
    made = flags.VerbParser("attach", "Runs a command where the processes of a job are.")
    made.add_argument("job", metavar="JOB", help="name of the job")
    made.add_argument(
        "command",
        metavar="COMMAND",
        nargs="*",
        help="what to run, after -- if it has flags (default: your shell)",
    )
    made.add_argument(
        "-i", "--instance", default="", metavar="NAME", help="where (default: the chief)"
    )
    made.add_argument(
        "-c", "--container", default="", metavar="NAME", help="container, on a cluster"
    )
    jobs.add_type(made)
    return made
