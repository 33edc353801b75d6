"""`midflight operator run|install|uninstall|status`: what runs jobs on Kubernetes.

`run` is what the operator's pods do, and what is meant when nothing is said; the others are for
whoever looks after a cluster, and have a file each.
"""

import argparse
import importlib
from collections.abc import Sequence

from midflight.arguments import Parser
from midflight.cli import common_flags, flags
from midflight.errors import UsageError

MODULES = {
    "install": "midflight.cli.verbs.operator_install",
    "uninstall": "midflight.cli.verbs.operator_uninstall",
    "status": "midflight.cli.verbs.operator_status",
}


def main(argv: Sequence[str]) -> int:
    rest = common_flags.take_more(argv)
    if rest and rest[0] in ("-h", "--help"):
        parser().parse_args(rest[:1])
    action, words = ("run", rest) if not rest or rest[0].startswith("-") else (rest[0], rest[1:])
    if action == "run":
        return _run(words)
    if action not in MODULES:
        raise UsageError(f"wanted `operator run|{'|'.join(MODULES)}`, got {action!r}")
    code: int = importlib.import_module(MODULES[action]).main(words)
    return code


def _run(argv: Sequence[str]) -> int:
    from midflight.kubernetes.operator import main as operator

    made = flags.VerbParser("operator run", "Runs the jobs of a cluster until it is stopped.")
    operator.add_options(made)
    return operator.main(made.read(argv))


def parser() -> argparse.ArgumentParser:
    made = flags.VerbParser(
        "operator", "Runs jobs on Kubernetes, or installs the operator. Without an action: run."
    )
    actions = made.add_subparsers(metavar="ACTION", title="actions", parser_class=Parser)
    actions.add_parser("run", help="Runs the jobs of a cluster: the operator itself.")
    for action, module in MODULES.items():
        parent = importlib.import_module(module).parser()
        actions.add_parser(
            action, prog=parent.prog, parents=[parent], add_help=False, help=parent.description
        )
    return made
