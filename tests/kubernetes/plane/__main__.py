"""`python -m tests.kubernetes.plane up`: the cluster of the tests, for trying things on it."""

import argparse
import signal
import sys
import time

from midflight.kubernetes.resources.crds import crds
from tests.kubernetes.plane import binaries
from tests.kubernetes.plane.control import Plane
from tests.kubernetes.plane.nodes import Nodes


def up(count: int) -> None:
    begin = time.monotonic()
    plane = Plane.start(binaries.obtain(), crds())
    nodes = Nodes(plane)
    try:
        print(f"control plane up after {time.monotonic() - begin:.1f} s", flush=True)
        nodes.start(*(f"node-{index}" for index in range(count)))
        print(f"{count} nodes up after {time.monotonic() - begin:.1f} s", flush=True)
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        print(f"logs in {plane.folder}; Ctrl-C ends it all", flush=True)
        signal.pause()
    finally:
        nodes.stop()
        plane.stop()


def _end(*_: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # tidying up is not to be interrupted
    sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.plane")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("up", help="start a cluster and keep it until Ctrl-C")
    verb.add_argument("--nodes", type=int, default=3)
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        up(given.nodes)
    except binaries.Missing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
