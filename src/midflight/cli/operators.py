"""What installing, uninstalling and looking at the operator share: flags, cluster and lines."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from midflight import durations
from midflight.cli import contexts, flags, output
from midflight.deadlines import OPERATOR
from midflight.errors import UsageError

if TYPE_CHECKING:
    from midflight.kubernetes.api.connection import Connection
    from midflight.kubernetes.install.apply import Done


def connect(options: argparse.Namespace) -> "Connection":
    """Where this machine is chosen for jobs, the cluster is the one that kubectl would take."""
    settings = contexts.settings(contexts.current(options.config))
    try:
        from midflight.kubernetes.api.connection import open_connection

        return open_connection(settings)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"clusters need the package lightkube ({error.name} is missing); "
            "`pip install 'midflight[kubernetes]'` brings it"
        ) from None


def print_each(done: "Iterator[Done]", form: str) -> "list[Done]":
    """All of it; each is said as it happens, unless a machine reads it in the end."""
    found = []
    for one in done:
        found.append(one)
        if not form:
            print(f"{one.what} {one.how}", flush=True)
    return found


def verb(name: str, description: str) -> flags.VerbParser:
    made = flags.VerbParser(f"operator {name}", description)
    made._option_string_actions[
        "--namespace"
    ].help = "namespace of the operator (default midflight-system)"
    output.add(made)
    return made


def add_timeout(made: flags.VerbParser, help: str) -> None:
    made.add_argument(
        "--timeout", type=durations.parse, default=OPERATOR, metavar="TIME", help=f"{help} (5m)"
    )
