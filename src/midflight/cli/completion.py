"""`midflight completion bash|zsh`: a script for the shell, made from the parsers of all verbs."""

import argparse
import importlib
from collections.abc import Sequence

from midflight.cli import flags, program
from midflight.errors import UsageError
from midflight.run.arguments import Parser

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
    from midflight.cli.main import VERBS

    made = Parser(prog=program.name())
    verbs = made.add_subparsers()
    for verb, (module, what) in VERBS.items():
        loaded = importlib.import_module(module)
        find = getattr(loaded, "parser", None) or getattr(loaded, "_parser", None)
        parents = [find()] if find else []
        verbs.add_parser(verb, help=what, parents=parents, add_help=not parents)
    return made


def parser() -> flags.VerbParser:
    made = flags.VerbParser("completion", "Prints a script that completes commands.")
    made.add_argument("shell", choices=SHELLS, help="source <(... completion bash)")
    return made
