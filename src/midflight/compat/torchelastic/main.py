"""torchrun: words in, exit code out.

Exit codes: 0 all workers ended well, 1 a worker failed or the job did, 2 the command line is
wrong, 128 and a signal's number when that ended this node's part.
"""

import asyncio
import os
import socket
from collections.abc import Sequence

from midflight import descriptors, terminal
from midflight.compat.torchelastic.c10d import C10dMeeting
from midflight.compat.torchelastic.environment import threads_are_set
from midflight.compat.torchelastic.failures import first_of, line_of, pass_on, summary
from midflight.compat.torchelastic.node import TorchrunNode, make_name
from midflight.compat.torchelastic.node_protocol import Identity, Meeting
from midflight.compat.torchelastic.options import Options, parse
from midflight.compat.torchelastic.places import own_address
from midflight.console import exit_code_of, say

STARS = "*****************************************"
THREADS_BANNER = (
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid "
    "your system being overloaded, please further tune the variable for optimal performance in "
    "your application as needed. "
)


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    options = parse(argv, os.environ)
    descriptors.raise_limit()
    for note in options.notes:
        say(f"warning: {note}")
    if threads_are_set(os.environ, options):
        terminal.err([STARS, THREADS_BANNER, STARS])
    return asyncio.run(_run(options))


async def _run(options: Options) -> int:
    node = TorchrunNode(options, _identity(options), _meeting(options), dict(os.environ))
    code = await node.run()
    if 0 < code < 128:
        if node.told_why:
            say(f"error: {node.told_why}")
        if node.failures:
            _tell_failures(options, node)
    return code


def _identity(options: Options) -> Identity:
    rendezvous = options.rendezvous
    rank = rendezvous.node_rank if rendezvous.backend == "static" else None
    address = own_address(rendezvous.endpoints[0].host, options.local_addr)
    return Identity(make_name(rank), address, options.spec())


def _meeting(options: Options) -> Meeting:
    if options.rendezvous.backend == "etcd":
        from midflight.compat.torchelastic.etcd import EtcdMeeting  # its http is slow to load

        return EtcdMeeting(options.rendezvous, dict(os.environ))
    return C10dMeeting(options.rendezvous, dict(os.environ))


def _tell_failures(options: Options, node: TorchrunNode) -> None:
    root = first_of(node.failures)
    say(f"error: {line_of(root, options.command[0])}")
    terminal.err(summary(options.title, node.failures, socket.getfqdn()).split("\n"))
    if target := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        pass_on(root, target)
