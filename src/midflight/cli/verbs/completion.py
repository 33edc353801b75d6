"""`midflight completion bash|zsh`: a script for the shell, made from the parsers of all verbs."""

import argparse
from collections.abc import Sequence

from midflight.arguments import Parser
from midflight.cli import flags, messages
from midflight.cli.verbs import VERBS, load
from midflight.errors import UsageError

SHELLS = ("bash", "zsh")


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    try:
        import shtab
    except ImportError:
        raise UsageError(
            "completion needs the package shtab; `pip install midflight[completion]` brings it"
        ) from None
    print(shtab.complete(everything(), options.shell))
    return 0


def everything() -> argparse.ArgumentParser:
    """One parser that has all verbs below it."""
    made = Parser(prog=messages.program())
    verbs = made.add_subparsers()
    for verb, what in VERBS.items():
        parent = load(verb).parser()
        verbs.add_parser(verb, help=what, parents=[parent], add_help=False)
    return made


def parser() -> flags.VerbParser:
    made = flags.VerbParser("completion", "Prints a completion script for a shell.")
    made.add_argument("shell", choices=SHELLS, help="use as `source <(... completion bash)`")
    return made
