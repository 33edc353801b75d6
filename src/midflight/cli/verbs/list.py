"""`midflight list`: the jobs, newest first, in the five columns of the guides."""

from collections.abc import Sequence

from midflight import durations
from midflight.cli import flags, job_types, jobs, output
from midflight.cli.cluster import connect
from midflight.cli.job_tables import ENDED, HOLDING
from midflight.cli.output import add_watch, show, table
from midflight.protocol.views import JobSummary

_COLUMNS = ("NAME", "STATUS", "TRAINER", "AGE", "NODE")
_WIDE = ("WORKERS", "DURATION", "GPU(Requested)", "GPU(Allocated)")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    client = connect()

    def find() -> list[JobSummary]:
        found = client.jobs(options.scope, options.type) if _is_here(options.type) else []
        return sorted(found, key=lambda job: job["createTime"], reverse=True)

    def text() -> str:
        return as_text(find(), options.all_namespaces, wide=options.output == "wide")

    if options.output in output.FOR_MACHINES:
        found = find()
        output.data(options.output, found, (job["name"] for job in found))
        return 0
    return show(text, again=options.watch)


def _is_here(kind: str) -> bool:
    """Of the original's other types there are no jobs."""
    return not kind or kind in job_types.HERE


def as_text(found: Sequence[JobSummary], namespaces: bool, wide: bool) -> str:
    header = (*(("NAMESPACE",) if namespaces else ()), *_COLUMNS, *(_WIDE if wide else ()))
    return table(header, [_row(job, namespaces, wide) for job in found])


def _row(job: JobSummary, namespaces: bool, wide: bool) -> tuple[object, ...]:
    more: tuple[object, ...] = ()
    if wide:
        more = (
            job["workers"],
            durations.shown(job["duration"]),
            job["requestGPUs"],
            allocated(job),
        )
    return (
        *((job["namespace"],) if namespaces else ()),
        job["name"],
        job["status"],
        job["trainer"],
        output.age(job["createTime"]),
        "N/A" if job["status"] in ENDED else job["node"],
        *more,
    )


def allocated(job: JobSummary) -> object:
    return job["allocatedGPUs"] if job["status"] in HOLDING else "N/A"


def parser() -> flags.VerbParser:
    made = flags.VerbParser("list", "Lists the jobs, newest first.")
    flags.add_all_namespaces(made)
    jobs.add_type(made)
    output.add(made)
    add_watch(made)
    return made
