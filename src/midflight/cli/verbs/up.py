"""`midflight up`: starts the server, and says which nodes there are.

Any verb that needs the server starts it, so this is for those who want simulated nodes, or to see
that it works.
"""

import argparse
from collections.abc import Sequence

from midflight.arguments import Parser, count_from
from midflight.cli import messages
from midflight.cli.cluster import connect
from midflight.cli.output import table
from midflight.console import say
from midflight.errors import UsageError
from midflight.protocol.views import NodeView


def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    if options.nodes is None and options.gpus_per_node is not None:
        raise UsageError("--gpus-per-node says how large simulated nodes are; give --nodes as well")
    client = connect()
    if options.nodes is None:
        nodes = client.nodes()
    else:
        nodes = client.simulate_nodes(options.nodes, options.gpus_per_node or 0)
    status = client.status()
    say(f"the server {status['version']} is up (process {status['pid']}) in {status['home']}")
    if note := _note(nodes):
        say(note)
    print(as_text(nodes))
    return 0


def as_text(nodes: Sequence[NodeView]) -> str:
    rows = [(n["name"], n["address"], n["status"], n["gpus"], n["allocatedGPUs"]) for n in nodes]
    return table(("NAME", "IPADDRESS", "STATUS", "GPU(Total)", "GPU(Allocated)"), rows)


def _note(nodes: Sequence[NodeView]) -> str:
    if any(node["virtual"] and node["gpus"] for node in nodes):
        return "these GPUs are CPU slots: they serve --gpus requests, and training runs on the CPU"
    return ""


def parser() -> argparse.ArgumentParser:
    parser = Parser(prog=f"{messages.program()} up", description="Starts your server.")
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=count_from(0),
        help="simulate this many nodes; 0: this machine is the only node",
    )
    parser.add_argument(
        "--gpus-per-node",
        metavar="M",
        type=count_from(0),
        help="GPUs of each simulated node (default 0)",
    )
    return parser
