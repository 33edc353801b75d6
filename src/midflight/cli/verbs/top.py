"""`midflight top node [NODE...]` and `midflight top job [JOB]`: who has which GPUs.

`top node` shows the nodes, and the sum below the line; `top job` the jobs that are not over, or one
of them in detail.
"""

import argparse
from collections.abc import Callable, Sequence

from midflight.arguments import Parser
from midflight.cli import common_flags, flags, jobs, output, screen
from midflight.cli.cluster import connect
from midflight.cli.job_tables import (
    HOLDING,
    Usage,
    gpu_row,
    gpu_sum,
    gpu_usage,
    head,
    training_line,
)
from midflight.cli.output import add_watch, fields, section, show, table
from midflight.errors import NotFound, UsageError
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import JobSummary, JobView, NodeView

_NODES = ("NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)")
_LINE = 89
_MODES: dict[str, Callable[[NodeView], bool]] = {
    "n": lambda node: node["gpus"] == 0,
    "e": lambda node: node["gpus"] > 0,
    "t": lambda node: False,
    "s": lambda node: False,
}
_JOBS = ("NAME", "STATUS", "TRAINER", "AGE", "GPU(Requested)", "GPU(Allocated)", "NODE")
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
    rest = common_flags.take_more(argv)
    if rest and rest[0] in ("-h", "--help"):
        parser().parse_args(rest[:1])
    match rest[:1]:
        case ["node"]:
            return _top_node(_node_parser().read(rest[1:]))
        case ["job"]:
            return _top_job(_job_parser().read(rest[1:]))
        case _:
            raise UsageError(f"wanted `top node` or `top job`, got {' '.join(rest) or 'neither'}")


def parser() -> argparse.ArgumentParser:
    made = flags.VerbParser("top", "Shows who uses which GPUs.")
    kinds = made.add_subparsers(metavar="KIND", title="kinds", parser_class=Parser)
    for kind, parent in (("node", _node_parser()), ("job", _job_parser())):
        kinds.add_parser(
            kind, prog=parent.prog, parents=[parent], add_help=False, help=parent.description
        )
    return made


# --- nodes ----------------------------------------------------------------------------------------


def _top_node(options: argparse.Namespace) -> int:
    client = connect()

    def found() -> list[NodeView]:
        nodes = _choose(client.nodes(), options.nodes)
        return [node for node in nodes if not options.gpu_mode or _MODES[options.gpu_mode](node)]

    def text() -> str:
        nodes = found()
        return _in_detail(nodes) if options.details else _node_table(nodes, not options.nodes)

    if options.output in output.FOR_MACHINES:
        nodes = found()
        output.data(options.output, nodes, (node["name"] for node in nodes))
        return 0
    return show(text, again=options.watch)


def _choose(nodes: list[NodeView], names: Sequence[str]) -> list[NodeView]:
    by_name = {node["name"]: node for node in nodes}
    if missing := [name for name in names if name not in by_name]:
        raise NotFound(
            f"no node is named {', '.join(missing)}; there are: {', '.join(by_name) or 'none'}"
        )
    if not nodes:
        raise NotFound("failed to display nodes's informations: not found nodes")
    return [by_name[name] for name in names] or nodes


def _node_table(nodes: Sequence[NodeView], footer: bool) -> str:
    rows = [
        (
            node["name"],
            node["address"],
            node["role"],
            _status(node),
            node["gpus"],
            node["allocatedGPUs"],
        )
        for node in nodes
    ]
    lines = [table(_NODES, rows)]
    if footer:
        lines += [_line(), "Allocated/Total GPUs In Cluster:", _share(nodes)]
        active = [node for node in nodes if node["status"].startswith("Ready")]
        if sum(node["gpus"] for node in active) < sum(node["gpus"] for node in nodes):
            lines += ["Allocated/Total GPUs(Active) In Cluster:", _share(active)]
    return "\n".join(lines)


def _line() -> str:
    return "-" * min(_LINE, screen.columns() or _LINE)


def _status(node: NodeView) -> str:
    """As the guides write it: ready, notReady."""
    return node["status"][:1].lower() + node["status"][1:]


def _share(nodes: Sequence[NodeView]) -> str:
    total = sum(node["gpus"] for node in nodes)
    taken = sum(node["allocatedGPUs"] for node in nodes)
    return f"{taken}/{total} ({100 * taken // total if total else 0}%)"


def _in_detail(nodes: Sequence[NodeView]) -> str:
    return f"\n\n{_line()}\n\n".join(_details(node) for node in nodes)


def _details(node: NodeView) -> str:
    head = fields(
        {
            "Name": node["name"],
            "Status": node["status"],
            "Role": node["role"],
            "Address": node["address"],
            "Labels": ",".join(f"{key}={value}" for key, value in node["labels"].items()) or "-",
            "Devices": "CPU slots" if node["virtual"] else "GPUs",
            "Total": node["gpus"],
            "Allocated": node["allocatedGPUs"],
        }
    )
    rows = [each.split("/", 2) for each in node["instances"]]
    return f"{head}\n\n{section('Instances', ('NAMESPACE', 'JOB', 'INSTANCE'), rows)}"


def _node_parser() -> flags.VerbParser:
    made = flags.VerbParser("top node", "Shows the GPUs of the nodes.")
    made.add_argument("nodes", metavar="NODE", nargs="*", help="show only these")
    flags.switch(made, "-d", "--details", help="show the instances of each node")
    add_watch(made, "-r", "--refresh")
    flags.switch(made, "--metric", help="ignored: how busy GPUs are is not measured")
    made.add_argument(
        "-m",
        "--gpu-mode",
        choices=tuple(_MODES),
        default="",
        help="n: nodes without GPUs; e: nodes with GPUs; t, s: no nodes here",
    )
    output.add(made)
    return made


# --- jobs -----------------------------------------------------------------------------------------


def _top_job(options: argparse.Namespace) -> int:
    client = connect()

    def one() -> JobView:
        return jobs.find(client, options.namespace, options.job, options.type)

    def text() -> str:
        if options.job:
            job = one()
            shown = _closely(job, options.instance, gpu_usage(client, job["instances"]))
            training = training_line(client, job)
            return f"{shown}\nTraining: {training}" if training else shown
        return _job_table(_under_way(client, options.scope, options.type), options.all_namespaces)

    if options.output not in ("json", "yaml", "name"):
        return show(text, again=options.watch)
    if options.job:
        output.data(options.output, one(), [options.job])
    else:
        found = _under_way(client, options.scope, options.type)
        output.data(options.output, found, (job["name"] for job in found))
    return 0


def _under_way(client: ClusterApi, namespace: str, kind: str) -> list[JobSummary]:
    """Those that ask for most come first."""
    found = [job for job in client.jobs(namespace, kind) if job["status"] in HOLDING]
    return sorted(found, key=lambda job: -job["requestGPUs"])


def _job_table(found: Sequence[JobSummary], namespaces: bool) -> str:
    rows = [
        (
            *((job["namespace"],) if namespaces else ()),
            job["name"],
            job["status"],
            job["trainer"],
            output.age(job["createTime"]),
            job["requestGPUs"],
            job["allocatedGPUs"],
            job["node"],
        )
        for job in found
    ]
    header = (*(("NAMESPACE",) if namespaces else ()), *_JOBS)
    allocated = sum(job["allocatedGPUs"] for job in found)
    requested = sum(job["requestGPUs"] for job in found)
    total = f"Total Allocated/Requested GPUs of Training Jobs: {allocated}/{requested}"
    return f"{table(header, rows)}\n\n{total}"


def _closely(job: JobView, instance: str, busy: Usage) -> str:
    chosen = [jobs.instance(job, instance)] if instance else job["instances"]
    rows = []
    for each in chosen:
        name, _, requested, devices, duty, memory = gpu_row(each, busy)
        rows.append((name, each["status"], requested, each["node"], devices, duty, memory))
    return f"{head(job)}\n\n{table(_INSTANCES, rows)}\n\n{gpu_sum(job)}"


def _job_parser() -> flags.VerbParser:
    made = flags.VerbParser("top job", "Shows the GPUs of unfinished jobs.")
    made.add_argument("job", metavar="JOB", nargs="?", default="", help="show this job in detail")
    flags.add_all_namespaces(made)
    add_watch(made, "-r", "--refresh")
    made.add_argument(
        "-i", "--instance", default="", metavar="NAME", help="show only this instance of JOB"
    )
    jobs.add_type(made)
    output.add(made)
    return made
