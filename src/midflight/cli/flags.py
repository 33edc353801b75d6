"""Reading flags the way the users of the original are used to, on top of argparse.

`--flag value` and `--flag=value`, values that begin with a dash, `--switch` and `--switch=false`,
short ones in one word (`-Ao json`), flags and words in any order, and everything after `--` as it
is. `arrange` brings these into one form, so that argparse has nothing to guess.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from midflight.arguments import Parser
from midflight.cli import common_flags, messages
from midflight.errors import UsageError

_YES = (None, "1", "t", "T", "true", "TRUE", "True")
_IN_QUOTES = "; a command with flags of its own goes in quotes, or after --"
_NO = ("0", "f", "F", "false", "FALSE", "False")


class UnknownFlag(UsageError):
    """A flag that the verb does not have."""


class VerbParser(Parser):
    """The parser of one verb. Read with `read`; parse_args alone knows less."""

    def __init__(self, verb: str, description: str, **settings: object) -> None:
        super().__init__(
            prog=f"{messages.program()} {verb}",
            description=description,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **settings,  # type: ignore[arg-type]
        )
        self.renamed: Mapping[str, str] = {}  # deprecated spellings to those that took their place
        common_flags.add(self)

    def format_help(self) -> str:
        """What is this verb's own comes first."""
        self._action_groups.sort(key=lambda group: group.title == common_flags.TITLE)
        return super().format_help()

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """The options; `rest` holds the words after `--`."""
        try:
            arranged = arrange(argv, self._option_string_actions, self.renamed)
        except UnknownFlag as error:
            hint = _IN_QUOTES if any(a.dest == "command" for a in self._actions) else ""
            raise UsageError(f"{error}{hint}; {self.flags_there_are()}") from None
        for old, new in arranged.deprecated:
            messages.plain(f"Flag {old} has been deprecated, please use {new} instead")
        options = self.parse_args([*arranged.flags, *arranged.words])
        options.rest = list(arranged.rest)
        common_flags.note(options)
        options.scope = "*" if getattr(options, "all_namespaces", False) else options.namespace
        return options


@dataclass(frozen=True)
class Arranged:
    flags: tuple[str, ...]  # each in one word, with its value
    words: tuple[str, ...]
    rest: tuple[str, ...]  # what came after --
    deprecated: tuple[tuple[str, str], ...]


def arrange(
    argv: Sequence[str], known: Mapping[str, argparse.Action], renamed: Mapping[str, str]
) -> Arranged:
    flags: list[str] = []
    words: list[str] = []
    deprecated: dict[str, str] = {}
    left = list(argv)
    while left:
        token = left.pop(0)
        if token == "--":
            break
        if not token.startswith("-") or token == "-":
            words.append(token)
            continue
        flag, value, others = _split(token, known)
        left[:0] = others
        if flag in renamed:
            old, flag = flag, renamed[flag]
            deprecated[old] = flag
        if flag not in known:
            raise UnknownFlag(_unknown(flag, known))
        if known[flag].nargs == 0:
            flags.append(flag if value in _YES else _opposite(flag, value, known))
        else:
            flags.append(f"{flag}={_value(flag, left) if value is None else value}")
    return Arranged(tuple(flags), tuple(words), tuple(left), tuple(deprecated.items()))


def _split(
    token: str, known: Mapping[str, argparse.Action]
) -> tuple[str, str | None, Sequence[str]]:
    """The flag, the value that came with it, and other flags of the same word."""
    flag, equals, value = token.partition("=")
    if token.startswith("--") or len(flag) == 2:
        return flag, value if equals else None, ()
    short = token[:2]
    if short in known and known[short].nargs == 0:
        return short, None, (f"-{token[2:]}",)
    return short, token[2:], ()  # -e with its value in one word


def _value(flag: str, left: list[str]) -> str:
    if not left:
        raise UsageError(f"flag needs an argument: {flag}")
    return left.pop(0)


def _opposite(flag: str, value: str | None, known: Mapping[str, argparse.Action]) -> str:
    found = [f"--no-{name[2:]}" for name in known[flag].option_strings if name.startswith("--")]
    if value not in _NO or found[0] not in known:
        raise UsageError(f"wanted true or false for {flag}, got {value!r}")
    return found[0]


def _unknown(flag: str, known: Iterable[str]) -> str:
    import difflib  # only here, so that nobody waits for it

    names = {name.lstrip("-"): name for name in known}  # all are alike in their dashes
    near = difflib.get_close_matches(flag.lstrip("-"), names, n=1, cutoff=0.7)
    return f"unknown flag: {flag}" + (f"; did you mean {names[near[0]]}?" if near else "")


def switch(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    *names: str,
    help: str,
    default: bool | None = False,
) -> None:
    """A flag that is there or not; `--no-NAME` and `--NAME=false` say that it is not."""
    long = next(name for name in names if name.startswith("--"))
    dest = long[2:].replace("-", "_")
    parser.add_argument(
        *names, dest=dest, action="store_const", const=True, default=default, help=help
    )
    parser.add_argument(
        f"--no-{long[2:]}",
        dest=dest,
        action="store_const",
        const=False,
        default=default,
        help=argparse.SUPPRESS,
    )


def add_all_namespaces(parser: VerbParser) -> None:
    """`options.scope` is then the namespace that is meant, * for all of them."""
    parser.renamed = {"--allNamespaces": "--all-namespaces"}
    switch(parser, "-A", "--all-namespaces", help="in all namespaces")


def number(text: str) -> int:
    """Any whole number; whether it makes sense is for others to say."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wanted a whole number, got {text!r}") from None


def pair(text: str) -> tuple[str, str]:
    """NAME=VALUE, with whatever the value holds."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"wanted NAME=VALUE, got {text!r}")
    return name, value
