"""`midflight completion bash|zsh|fish`: a script for the shell, made from the parsers of all verbs.

Names of jobs, runs and nodes are asked for at each completion (`midflight names`), values are in
the script. It can be sourced, or for zsh be a file `_midflight` on the fpath.
"""

import argparse
from collections.abc import Sequence

from midflight.arguments import Parser
from midflight.cli import flags, messages
from midflight.cli.verbs import VERBS, load
from midflight.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_USE = "bash, zsh: `source <({0} completion bash)`; fish: `{0} completion fish | source`"
# How shtab's script for zsh learns whether it is sourced: it takes `eval` alone for that.
_EVALUATED, _NOT_AUTOLOADED = (
    "$zsh_eval_context[-1] == eval",
    "$zsh_eval_context[-1] != loadautofunc",
)
_KINDS = {"JOB": "jobs", "RUN": "runs", "RUN|JOB": "trainings", "NODE": "nodes"}  # by metavar


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    try:
        import shtab
    except ImportError:
        raise UsageError(
            "completion needs the package shtab; `pip install midflight[completion]` brings it"
        ) from None
    script = shtab.complete(everything(), options.shell)
    print(script.replace(_EVALUATED, _NOT_AUTOLOADED))
    return 0


def everything() -> argparse.ArgumentParser:
    """One parser that has all verbs below it."""
    made = Parser(prog=messages.program())
    verbs = made.add_subparsers()
    for verb, what in VERBS.items():
        parent = load(verb).parser()
        _offer(parent)
        verbs.add_parser(verb, help=what, parents=[parent], add_help=False)
    return made


def _offer(verb: argparse.ArgumentParser) -> None:
    """Names and values, wherever the parser says of which kind they are."""
    from shtab import cmd

    for action in verb._actions:  # argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _offer(below)
        if offered := vars(action).get("offered"):
            action.choices = offered
        elif kind := _KINDS.get(str(action.metavar)):
            vars(action)["complete"] = cmd(f"{messages.program()} names {kind} 2>/dev/null")


def parser() -> flags.VerbParser:
    made = flags.VerbParser("completion", "Prints a completion script for a shell.")
    made.add_argument("shell", choices=SHELLS, help=_USE.format(messages.program()))
    return made
