"""`midflight node ACTION [NAME]`: the nodes, and what can be done to one."""

from collections.abc import Sequence

from midflight.cli import flags, output
from midflight.cli.cluster import connect
from midflight.cli.output import table
from midflight.errors import UsageError
from midflight.protocol.views import NodeView

ACTIONS = ("cordon", "drain", "lose", "return")
_COLUMNS = ("NAME", "STATUS", "ADDRESS", "GPU(Total)", "GPU(Allocated)", "INSTANCES")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if options.action == "list":
        found = connect().nodes()
        if not output.data(options.output, found, (node["name"] for node in found)):
            print(table(_COLUMNS, [_row(node) for node in found]))
        return 0
    if not options.name:
        raise UsageError(f"wanted the name of a node to {options.action}, got none")
    node = connect().node_action(options.name, options.action)
    if not output.data(options.output, node, [node["name"]]):
        print(f"{node['name']} is {node['status']}")
    return 0


def _row(node: NodeView) -> tuple[object, ...]:
    return (
        node["name"],
        node["status"],
        node["address"],
        node["gpus"],
        node["allocatedGPUs"],
        len(node["instances"]),
    )


def parser() -> flags.VerbParser:
    made = flags.VerbParser("node", "Lists the nodes, or changes one.")
    made.add_argument(
        "action",
        choices=("list", *ACTIONS),
        help="cordon: place nothing new there; drain: move its instances to other nodes; "
        "lose: rehearse its loss; return: use it again",
    )
    made.add_argument("name", metavar="NODE", nargs="?", default="", help="name of the node")
    output.add(made)
    return made
