"""Command lines as Go programs read them: `-x y`, `-x=y`, `--x`, and switches `-x` or `-x=false`.

The first word that is no flag begins the command; `--` does too. Everything that is wrong is a
UsageError in one line. Durations are Go's (`1m30s`), and a plain number means seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from midflight.errors import UsageError

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


@dataclass(frozen=True)
class Flag:
    default: Any
    read: Callable[[str], Any]
    help: str

    @property
    def is_switch(self) -> bool:
        return self.read is switch


def parse(
    program: str, flags: Mapping[str, Flag], words: Sequence[str]
) -> tuple[dict[str, Any], set[str], list[str]]:
    """The value of each flag, which of them were given, and what follows them."""
    values = {name: flag.default for name, flag in flags.items()}
    given: set[str] = set()
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if name in ("h", "help"):
            print(_usage(program, flags))
            raise SystemExit(0)  # as argparse does
        flag = flags.get(name)
        if flag is None:
            raise UsageError(f"there is no flag -{name}; see `{program} -help`")
        if not equals:
            text = _next_word(program, name, flag, rest)
        try:
            values[name] = flag.read(text)
        except UsageError as error:
            raise UsageError(f"-{name}: {error}") from None
        given.add(name)
    return values, given, rest


def _next_word(program: str, name: str, flag: Flag, rest: list[str]) -> str:
    if flag.is_switch:
        return "true"
    if not rest:
        raise UsageError(f"-{name} needs a value; see `{program} -help`")
    return rest.pop(0)


def _usage(program: str, flags: Mapping[str, Flag]) -> str:
    lines = [f"Usage of {program}:"]
    for name, flag in flags.items():
        shown = "" if flag.default in (None, "", False) else f" (default {flag.default})"
        lines += [f"  -{name}", f"    \t{flag.help}{shown}"]
    return "\n".join(lines)


# --- kinds of values ------------------------------------------------------------------------


def text(given: str) -> str:
    return given


def switch(given: str) -> bool:
    if given in _TRUE | _FALSE:
        return given in _TRUE
    raise UsageError(f"wanted true or false, got {given!r:.40}")


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(given: str) -> int:
        digits = given.removeprefix("-").removeprefix("+")
        if not digits.isdecimal() or len(digits) > 18 or not least <= int(given) <= most:
            raise UsageError(f"wanted a whole number from {least} to {most}, got {given!r:.40}")
        return int(given)

    return read
