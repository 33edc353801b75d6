"""`midflight completion bash|zsh|fish`: a script for the shell, made from the parsers of all verbs.

Names of jobs, runs and nodes are asked for at each completion (`midflight names`), choices are in
the script.
"""

import argparse
from collections.abc import Sequence

from midflight.arguments import Parser
from midflight.cli import flags, messages
from midflight.cli.verbs import VERBS, load
from midflight.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_KINDS = {"JOB": "jobs", "RUN": "runs", "RUN|JOB": "trainings", "NODE": "nodes"}  # by metavar


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
        _offer_names(parent)
        verbs.add_parser(verb, help=what, parents=[parent], add_help=False)
    return made


def _offer_names(verb: argparse.ArgumentParser) -> None:
    from shtab import cmd

    for action in verb._actions:  # argparse has no public list of them
        kind = _KINDS.get(str(action.metavar))
        if kind is not None:
            vars(action)["complete"] = cmd(f"{messages.program()} names {kind} 2>/dev/null")


def parser() -> flags.VerbParser:
    made = flags.VerbParser("completion", "Prints a completion script for a shell.")
    made.add_argument("shell", choices=SHELLS, help="use as `source <(... completion bash)`")
    return made
