"""`midflight operator status`: which operators a cluster has, who leads, and which kinds it knows.

The exit code is 0 where every operator has somebody who leads, 1 where one has not or none is.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from midflight.cli import flags, messages, output
from midflight.cli.operators import connect, verb
from midflight.cli.output import table
from midflight.errors import NotFound
from midflight.protocol import codec

if TYPE_CHECKING:
    from midflight.kubernetes.install.inspection import Kind, Operator

_COLUMNS = ("NAMESPACE", "JOBS OF", "VERSION", "READY", "LEADER", "IMAGE")


def main(argv: Sequence[str]) -> int:
    from midflight.kubernetes.install import inspection, manifests

    options = parser().read(argv)
    connection = connect(options)
    server, version = connection.settings.server, connection.version()
    kinds = inspection.kinds(connection)
    operators = inspection.operators(connection, options.said_namespace or manifests.NAMESPACE)
    if options.said_namespace:
        operators = [one for one in operators if one.namespace == options.said_namespace]
    whole = {
        "server": server,
        "serverVersion": version,
        "operators": [codec.as_view(one) for one in operators],
        "kinds": [codec.as_view(one) for one in kinds],
    }
    if not output.data(options.output, whole, (one.namespace for one in operators)):
        print(as_text(f"{server} (Kubernetes {version})", operators, kinds))
    if not operators:
        raise NotFound(f"no operator is installed; `{messages.program()} operator install` does it")
    return 0 if all(one.ready and one.leader for one in operators) else 1


def as_text(cluster: str, operators: "Sequence[Operator]", kinds: "Sequence[Kind]") -> str:
    blocks = [f"Cluster: {cluster}"]
    if operators:
        blocks.append(table(_COLUMNS, [_row(one) for one in operators]))
    blocks.append(table(("KIND", "STATUS"), [(one.name, _said(one)) for one in kinds]))
    return "\n\n".join(blocks)


def _row(one: "Operator") -> tuple[str, ...]:
    ready = f"{one.ready}/{one.wanted}"
    return (
        one.namespace,
        one.scope or "all",
        one.version or "-",
        ready if one.current else f"{ready}, updating",
        one.leader or "nobody",
        one.image,
    )


def _said(kind: "Kind") -> str:
    if not kind.there:
        return "missing"
    if not kind.ours:
        return "not ours, left alone"
    return "served" if kind.served else "not served yet"


def parser() -> flags.VerbParser:
    return verb("status", "Shows which operators and kinds a cluster has.")
