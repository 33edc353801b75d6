"""`midflight names jobs|runs|trainings|nodes`: what completion scripts offer, a name a line.

It starts no server and says nothing of what goes wrong: nobody waits for an error after a Tab.
"""

import contextlib
from collections.abc import Sequence

from midflight.cli import flags
from midflight.cli.cluster import connect_if_running
from midflight.cli.runs import known_runs
from midflight.errors import MidflightError

KINDS = ("jobs", "runs", "trainings", "nodes")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    names = set(known_runs()) if options.kind in ("runs", "trainings") else set()
    if options.kind != "runs":
        with contextlib.suppress(MidflightError):
            names |= set(_asked(options.kind, options.namespace))
    print("\n".join(sorted(names)))
    return 0


def _asked(kind: str, namespace: str) -> list[str]:
    client = connect_if_running()
    if client is None:
        return []
    if kind == "nodes":
        return [node["name"] for node in client.nodes()]
    return [job["name"] for job in client.jobs(namespace)]


def parser() -> flags.VerbParser:
    made = flags.VerbParser("names", "Prints names, for completion scripts.")
    made.add_argument("kind", choices=KINDS)
    return made
