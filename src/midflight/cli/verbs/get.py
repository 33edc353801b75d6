"""`midflight get JOB`: one job, its instances and what was done to its size."""

import argparse
import os
from collections.abc import Sequence

from midflight import durations
from midflight.cli import flags, jobs, output
from midflight.cli.cluster import connect
from midflight.cli.job_tables import (
    Usage,
    classic,
    event_row,
    gpu_row,
    gpu_sum,
    gpu_usage,
    head,
    more,
)
from midflight.cli.output import add_watch, section, show
from midflight.errors import UsageError
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import EventView, InstanceView, OperationView

CLASSIC = "classic"
_INSTANCES = ("NAME", "STATUS", "AGE", "IS_CHIEF", "GPU(Requested)", "NODE")
_MORE = ("RESTARTS", "EXIT", "REASON")  # of an instance, with -o wide
_OPERATIONS = ("NAME", "KIND", "FROM", "TO", "STATUS", "AGE", "MESSAGE")
_EVENTS = ("SOURCE", "TYPE", "AGE", "MESSAGE")
_GPUS = (
    "INSTANCE",
    "NODE(IP)",
    "GPU(Requested)",
    "GPU(IndexId)",
    "GPU(DutyCycle)",
    "GPU Memory(Used/Total)",
)


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if not options.job:
        parser().print_help()
        raise UsageError("not set job name,please set it")
    client = connect()
    if options.output in output.FOR_MACHINES:
        job = jobs.find(client, options.namespace, options.job, options.type)
        output.data(options.output, job, [job["name"]])
        return 0
    return show(lambda: _text(client, options), again=options.watch)


def _text(client: ClusterApi, options: argparse.Namespace) -> str:
    job = jobs.find(client, options.namespace, options.job, options.type)
    layout = options.output or os.environ.get("MIDFLIGHT_LAYOUT", "")
    if layout == CLASSIC:
        blocks = [classic(job)]
    else:
        blocks = [head(job), _instances(job["instances"], wide=layout == "wide")]
    blocks.append(more(client, job))
    if job["operations"]:
        blocks.append(_operations(job["operations"]))
    if options.events:
        blocks.append(events(client.events(options.namespace, options.job)))
    if options.gpus:
        busy = gpu_usage(client, job["instances"])
        blocks += [_gpus(job["instances"], busy), gpu_sum(job)]
    return "\n\n".join(blocks)


def _instances(found: Sequence[InstanceView], wide: bool) -> str:
    header = (*_INSTANCES, *(_MORE if wide else ()))
    return section("Instances", header, [_instance(each, wide) for each in found])


def _instance(each: InstanceView, wide: bool) -> tuple[object, ...]:
    code = "-" if each["exitCode"] is None else each["exitCode"]
    more = (each["restarts"], code, each["reason"] or "-") if wide else ()
    return (
        each["name"],
        each["status"],
        durations.shown(each["age"]),
        str(each["chief"]).lower(),
        each["requestGPUs"],
        each["node"],
        *more,
    )


def _operations(found: Sequence[OperationView]) -> str:
    rows = [
        (
            each["id"],
            each["kind"],
            each["from"],
            each["to"],
            each["progress"],
            output.age(each["createTime"]),
            each["message"] or "-",
        )
        for each in found
    ]
    return section("Scale operations", _OPERATIONS, rows)


def events(found: Sequence[EventView]) -> str:
    return section("Events", _EVENTS, [event_row(each) for each in found])


def _gpus(found: Sequence[InstanceView], busy: Usage) -> str:
    rows = [gpu_row(each, busy) for each in found if each["requestGPUs"]]
    return section("GPUs", _GPUS, rows)


def parser() -> flags.VerbParser:
    made = flags.VerbParser("get", "Shows a job and its instances.")
    made.add_argument("job", metavar="JOB", nargs="?", help="name of the job")
    jobs.add_type(made)
    flags.switch(made, "-e", "--events", help="show its events")
    flags.switch(made, "-g", "--gpus", help="show the GPUs of its instances")
    output.add(made, CLASSIC)
    add_watch(made)
    return made
