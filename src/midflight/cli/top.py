"""`midflight top node|job`: who has which GPUs."""

import argparse
from collections.abc import Sequence

from midflight.cli import common_flags, flags
from midflight.errors import UsageError
from midflight.run.arguments import Parser

KINDS = ("node", "job")


def main(argv: Sequence[str]) -> int:
    from midflight.cli import top_job, top_node

    rest = common_flags.take_more(argv)
    if rest and rest[0] in ("-h", "--help"):
        parser().parse_args(rest[:1])
    if not rest or rest[0] not in KINDS:
        raise UsageError(f"wanted `top node` or `top job`, got {' '.join(rest) or 'neither'}")
    verb = top_node.main if rest[0] == "node" else top_job.main
    return verb(rest[1:])


def parser() -> argparse.ArgumentParser:
    from midflight.cli import top_job, top_node

    made = flags.VerbParser("top", "Shows who has which GPUs.")
    kinds = made.add_subparsers(metavar="KIND", title="of what", parser_class=Parser)
    for kind, parent in (("node", top_node.parser()), ("job", top_job.parser())):
        kinds.add_parser(
            kind, prog=parent.prog, parents=[parent], add_help=False, help=parent.description
        )
    return made
