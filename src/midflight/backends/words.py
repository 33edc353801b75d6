"""Whether a command brings its own launcher, found by the words at its command positions.

A command without one, plain `python train.py` say, is run in every worker, elastically. This reads
a shell line as far as one can without being a shell: it knows operators, assignments, words that
run other words, `sh -c TEXT` and `python -m MODULE`. Words that only a running shell knows (a
variable, an alias, what a script calls) are not seen; `run_in` is there for those.
"""

import re
import shlex
from collections.abc import Iterator

OURS = frozenset(
    {"midflight", "arena", "horovodrun", "kungfu-run", "kungfu-cluster-manager-example"}
)
OTHERS = frozenset(
    {"torchrun", "mpirun", "mpiexec", "deepspeed", "accelerate"}  # a run of their own, or none
)
OUR_MODULES = frozenset(
    {
        "midflight",
        "midflight.run",
        "midflight.torchrun",
        "midflight.cli",
        "midflight.cli.main",
    }
)
OTHER_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\+?=.*", re.DOTALL)
_OPERATOR = re.compile(r"[();<>|&]+")
_ARITHMETIC = re.compile(r"\$\(\([^()]*\)\)")  # the parentheses are no operators
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{"})
_RUNNERS = frozenset({"exec", "env", "nohup", "time", "command", "nice", "setsid", "stdbuf"})
_TIMED = frozenset({"timeout"})  # a runner whose first word is a number
_WITH_VALUE = frozenset({"-W", "-X", "-n", "-u", "-s", "-k", "-o"})  # options of the above
_DEPTH = 3  # of `sh -c` in `sh -c`


def runs_in_workers(command: str, run_in: str = "auto") -> bool:
    """Whether the command itself is what the members run; `run_in` decides unless it is auto."""
    if run_in != "auto":
        return run_in == "workers"
    return not launchers(command)


def uses_midflight(command: str, run_in: str = "auto") -> bool:
    """Whether a run, with a coordinator that can be asked, is to be expected of the command."""
    if runs_in_workers(command, run_in):
        return True
    return any(word in OURS | OUR_MODULES for word in launchers(command))


def in_place_of_the_shell(command: str) -> str:
    """The command with `exec` before it, where that is all the shell has to do.

    Then signals reach the program itself, and not a shell that waits for it.
    """
    text = _ARITHMETIC.sub("0", command.strip().replace("\\\n", " "))
    words = _words(text)
    if not words or "\n" in text:  # each line is a command
        return command
    if any(_OPERATOR.fullmatch(word) or word.startswith("#") for word in words):
        return command
    program = words[0].rpartition("/")[2]
    known = _PYTHON.fullmatch(program) or program in OURS | OTHERS | _SHELLS
    return f"exec {command}" if known else command


def launchers(command: str) -> tuple[str, ...]:
    """The launcher words of a command, in their order: program names and `-m` modules."""
    return tuple(_launchers(command, _DEPTH))


def _launchers(command: str, depth: int) -> Iterator[str]:
    for words in _simple_commands(_words(command)):
        words = _without_runners(words)
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        if program in OURS | OTHERS:
            yield program
        elif _PYTHON.fullmatch(program):
            if (module := _module(words[1:])) in OUR_MODULES | OTHER_MODULES:
                yield module
        elif program in _SHELLS and depth:
            yield from _launchers(_script(words[1:]), depth - 1)


def _words(command: str) -> list[str]:
    reader = shlex.shlex(command, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    reader.commenters = ""  # it would cut words in two; see _simple_commands
    try:
        return list(reader)
    except ValueError:  # a quote that does not end: the shell will say so
        return command.split()


def _simple_commands(words: list[str]) -> Iterator[list[str]]:
    """The words that follow each command position, up to the next one."""
    current: list[str] = []
    last = ""
    for word in words:
        if word.startswith("#"):
            break
        if not _OPERATOR.fullmatch(word):
            current.append(word)
        elif _begins_command(word, last):
            yield current
            current = []
        last = word
    yield current


def _begins_command(operator: str, before: str) -> bool:
    if set(operator) & set("<>"):
        return False  # a redirection
    return bool(set(operator) & set(";|&")) or ("(" in operator and not before.endswith("$"))


def _without_runners(words: list[str]) -> list[str]:
    """Without what stands before the program: assignments, `exec`, `env A=1`, `timeout 10`."""
    rest = list(words)
    while rest:
        word = rest[0].rpartition("/")[2]
        if _ASSIGNMENT.fullmatch(rest[0]) or word in _KEYWORDS:
            rest = rest[1:]
        elif word in _RUNNERS:
            rest = _after_options(rest[1:])
        elif word in _TIMED:
            rest = _after_options(rest[1:])[1:]
        else:
            return rest
    return rest


def _after_options(words: list[str]) -> list[str]:
    rest = list(words)
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in _WITH_VALUE else rest[1:]
    return rest


def _module(words: list[str]) -> str:
    """What `python WORDS` runs with -m; "" if that is a file or nothing."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest[0]
        if word.startswith("-m"):
            return word[2:] or (rest[1] if len(rest) > 1 else "")
        rest = rest[2:] if word in _WITH_VALUE - {"-u", "-s"} else rest[1:]
    return ""


def _script(words: list[str]) -> str:
    """The text that `sh WORDS` is given with -c; "" if it is given a file."""
    for number, word in enumerate(words):
        if not word.startswith("-"):
            return ""
        if re.fullmatch(r"-[a-z]*c", word):
            return words[number + 1] if len(words) > number + 1 else ""
    return ""
