"""`midflight VERB ...`, or `arena VERB ...`: finds the verb's file and hands it the rest."""

import argparse
import sys
from collections.abc import Sequence
from typing import TextIO, cast

import midflight
from midflight.arguments import Parser
from midflight.cli import common_flags, messages, screen
from midflight.cli.examples import EXAMPLES, FIRST, show_examples
from midflight.cli.verbs import ALIASES, COMMANDS_OF_SHELL, HIDDEN, VERBS, load
from midflight.console import exit_code_of, open_missing_streams, write_answer
from midflight.errors import MidflightError, UsageError
from midflight.terminal import Escaped


def main(argv: Sequence[str] | None = None) -> int:
    open_missing_streams()
    words = sys.argv[1:] if argv is None else argv
    plain = sys.stdout
    sys.stdout = cast(
        TextIO, Escaped(plain, screen.has_colour)
    )  # names and reasons that others chose
    try:
        return exit_code_of(lambda: write_answer(lambda: _dispatch(words)))
    finally:
        sys.stdout = plain


def arena(argv: Sequence[str] | None = None) -> int:
    return main(argv)


def _dispatch(argv: Sequence[str]) -> int:
    common, rest = common_flags.take(argv)
    common_flags.use(common)
    options = parser().parse_args(rest)
    verb, words = options.verb, options.rest
    if verb == "help" and words:
        verb, words = words[0], [*words[1:], "--help"]
    if verb in (None, "help"):
        parser().print_help()
        return 0
    verb = ALIASES.get(verb, verb)
    if verb not in VERBS and verb not in HIDDEN:
        raise UsageError(_unknown(verb))
    try:
        code: int = load(verb).main(words)
    except MidflightError as error:  # from below, where only one name of the program is known
        called = f"`{messages.program()} "
        error.args = tuple(str(text).replace("`midflight ", called) for text in error.args)
        raise
    except SystemExit as end:  # its parser has printed the help
        if not end.code and verb in EXAMPLES:
            print(f"\n{show_examples(EXAMPLES[verb])}")
        raise
    return code


def _unknown(verb: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(verb, [*VERBS, *ALIASES], 1)
    hint = f"did you mean {close[0]}? " if close else ""
    if verb in COMMANDS_OF_SHELL:
        hint = f"`{messages.program()} shell -- {verb} ...` runs that command; "
    return f"no verb is called {verb!r}; {hint}see `{messages.program()} --help`"


def parser() -> argparse.ArgumentParser:
    name = messages.program()
    lines = [f"  {verb:<10} {what}" for verb, what in VERBS.items()]
    lines += ["", show_examples(FIRST), "", f"`{name} help VERB` says more."]
    top = Parser(
        prog=name,
        usage=f"{name} VERB ...",
        description="Elastic PyTorch training: resize a running job without restarting it.",
        epilog="\n".join(["verbs:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"midflight {midflight.__version__}")
    top.add_argument("verb", metavar="VERB", nargs="?", help=argparse.SUPPRESS)
    top.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return top


if __name__ == "__main__":
    sys.exit(main())
