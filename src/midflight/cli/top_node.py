"""`midflight top node [NODE...]`: the nodes with their GPUs, and the sum below the line."""

from collections.abc import Callable, Sequence

from midflight.cli import flags, output
from midflight.cli.refreshing import keep_printing
from midflight.cli.tables import fields, section, table
from midflight.errors import NotFound
from midflight.protocol.views import NodeView

_COLUMNS = ("NAME", "IPADDRESS", "ROLE", "STATUS", "GPU(Total)", "GPU(Allocated)")
_LINE = "-" * 89
_MODES: dict[str, Callable[[NodeView], bool]] = {
    "n": lambda node: node["gpus"] == 0,
    "e": lambda node: node["gpus"] > 0,
    "t": lambda node: False,
    "s": lambda node: False,
}


def main(argv: Sequence[str]) -> int:
    from midflight.cli.cluster import connect

    options = parser().read(argv)
    client = connect()

    def found() -> list[NodeView]:
        nodes = choose(client.nodes(), options.nodes)
        return [node for node in nodes if not options.gpu_mode or _MODES[options.gpu_mode](node)]

    def text() -> str:
        nodes = found()
        return details(nodes) if options.details else summary(nodes, footer=not options.nodes)

    if options.output in ("json", "yaml", "name"):
        nodes = found()
        output.data(options.output, nodes, (node["name"] for node in nodes))
        return 0
    if options.refresh:
        return keep_printing(text)
    print(text())
    return 0


def choose(nodes: list[NodeView], names: Sequence[str]) -> list[NodeView]:
    by_name = {node["name"]: node for node in nodes}
    if missing := [name for name in names if name not in by_name]:
        raise NotFound(
            f"no node is named {', '.join(missing)}; there are: {', '.join(by_name) or 'none'}"
        )
    if not nodes:
        raise NotFound("failed to display nodes's informations: not found nodes")
    return [by_name[name] for name in names] or nodes


def summary(nodes: Sequence[NodeView], footer: bool) -> str:
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
    lines = [table(_COLUMNS, rows)]
    if footer:
        lines += [_LINE, "Allocated/Total GPUs In Cluster:", _share(nodes)]
        active = [node for node in nodes if node["status"].startswith("Ready")]
        if sum(node["gpus"] for node in active) < sum(node["gpus"] for node in nodes):
            lines += ["Allocated/Total GPUs(Active) In Cluster:", _share(active)]
    return "\n".join(lines)


def _status(node: NodeView) -> str:
    """As the guides write it: ready, notReady."""
    return node["status"][:1].lower() + node["status"][1:]


def _share(nodes: Sequence[NodeView]) -> str:
    total = sum(node["gpus"] for node in nodes)
    taken = sum(node["allocatedGPUs"] for node in nodes)
    return f"{taken}/{total} ({100 * taken // total if total else 0}%)"


def details(nodes: Sequence[NodeView]) -> str:
    return f"\n\n{_LINE}\n\n".join(_details(node) for node in nodes)


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


def parser() -> flags.VerbParser:
    made = flags.VerbParser("top node", "Shows the GPUs of the nodes.")
    made.add_argument("nodes", metavar="NODE", nargs="*", help="only these")
    flags.switch(made, "-d", "--details", help="also which instances are there")
    flags.switch(made, "-r", "--refresh", help="again every 2 seconds, until Ctrl-C")
    flags.switch(made, "--metric", help="ignored: how busy GPUs are is not measured")
    made.add_argument(
        "-m",
        "--gpu-mode",
        choices=tuple(_MODES),
        default="",
        help="n: nodes without GPUs; e: with; t, s: none here",
    )
    output.add(made)
    return made
