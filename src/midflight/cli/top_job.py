"""`midflight top job [JOB]`: the jobs that are not over with their GPUs, or one of them closely."""

from collections.abc import Sequence

from midflight.cli import flags, gpus, jobs, moments, output
from midflight.cli.get import gpu_row, gpu_sum, head
from midflight.cli.list import HOLDING
from midflight.cli.refreshing import keep_printing
from midflight.cli.tables import table
from midflight.client import Client
from midflight.protocol.views import JobSummary, JobView

_COLUMNS = ("NAME", "STATUS", "TRAINER", "AGE", "GPU(Requested)", "GPU(Allocated)", "NODE")
_INSTANCES = (
    "NAME",
    "STATUS",
    "GPU(Request)",
    "NODE",
    "GPU(DeviceIndex)",
    "GPU(DutyCycle)",
    "GPU_MEMORY(Used/Total)",
)


def main(argv: Sequence[str]) -> int:
    from midflight.cli.cluster import connect

    options = parser().read(argv)
    client = connect()
    namespace = "*" if options.all_namespaces else options.namespace

    def text() -> str:
        if options.job:
            job = jobs.find(client, options.namespace, options.job, options.type)
            return closely(job, options.instance, gpus.usage(client, job["instances"]))
        return summary(_under_way(client, namespace, options.type), options.all_namespaces)

    if options.output in ("json", "yaml", "name"):
        found: list[JobSummary] | JobView
        if options.job:
            found = jobs.find(client, options.namespace, options.job, options.type)
            output.data(options.output, found, [found["name"]])
        else:
            found = _under_way(client, namespace, options.type)
            output.data(options.output, found, (job["name"] for job in found))
        return 0
    if options.refresh:
        return keep_printing(text)
    print(text())
    return 0


def _under_way(client: Client, namespace: str, kind: str) -> list[JobSummary]:
    """Those that ask for most come first."""
    found = [job for job in client.jobs(namespace, kind) if job["status"] in HOLDING]
    return sorted(found, key=lambda job: -job["requestGPUs"])


def summary(found: Sequence[JobSummary], namespaces: bool) -> str:
    rows = [
        (
            *((job["namespace"],) if namespaces else ()),
            job["name"],
            job["status"],
            job["trainer"],
            moments.age(job["createTime"]),
            job["requestGPUs"],
            job["allocatedGPUs"],
            job["node"],
        )
        for job in found
    ]
    header = (*(("NAMESPACE",) if namespaces else ()), *_COLUMNS)
    allocated = sum(job["allocatedGPUs"] for job in found)
    requested = sum(job["requestGPUs"] for job in found)
    total = f"Total Allocated/Requested GPUs of Training Jobs: {allocated}/{requested}"
    return f"{table(header, rows)}\n\n{total}"


def closely(job: JobView, instance: str, busy: gpus.Usage) -> str:
    chosen = [jobs.instance(job, instance)] if instance else job["instances"]
    rows = []
    for each in chosen:
        name, _, requested, devices, duty, memory = gpu_row(each, busy)
        rows.append((name, each["status"], requested, each["node"], devices, duty, memory))
    return f"{head(job)}\n\n{table(_INSTANCES, rows)}\n\n{gpu_sum(job)}"


def parser() -> flags.VerbParser:
    made = flags.VerbParser("top job", "Shows the GPUs of the jobs that are not over.")
    made.add_argument("job", metavar="JOB", nargs="?", default="", help="this one, closely")
    made.renamed = {"--allNamespaces": "--all-namespaces"}
    flags.switch(made, "-A", "--all-namespaces", help="those of all namespaces")
    flags.switch(made, "-r", "--refresh", help="again every 2 seconds, until Ctrl-C")
    made.add_argument("-i", "--instance", default="", metavar="NAME", help="only this one of JOB")
    jobs.add_type(made)
    output.add(made)
    return made
