"""Whether a command brings its own launcher, found by the words at its command positions.

A command without one, plain `python train.py` say, is run in every worker, elastically. This reads
a shell line as far as one can without being a shell: it knows operators, assignments, words that
run other words, `sh -c TEXT` and `python -m MODULE`. Words that only a running shell knows (a
variable, an alias, what a script calls) are not seen; `run_in` is there for those.
"""

import functools
import re
from collections.abc import Iterator

OURS = frozenset(
    {"midflight", "arena", "horovodrun", "kungfu-run", "kungfu-cluster-manager-example"}
)
OTHERS = frozenset(  # a run of their own, or none
    {"torchrun", "mpirun", "mpiexec", "deepspeed", "accelerate", "accelerate-launch"}
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
_TORCH_MODULES = frozenset({"torch.distributed.run", "torch.distributed.launch"})
OTHER_MODULES = _TORCH_MODULES | {"accelerate.commands.launch", "deepspeed.launcher.runner"}
TORCHRUN = _TORCH_MODULES | {"torchrun", "midflight.torchrun"}
_LAUNCH = "launch"  # what accelerate does beside that (config, env, test) is no run

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\+?=.*", re.DOTALL)
_PIECE = re.compile(
    r"""(?P<space>(?:[ \t\r]|\\\n)+) | (?P<operator>[\n();<>|&]+) | (?P<plain>[^\s();<>|&'"\\]+)
    | '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*+)" | \\(?P<escaped>.) | (?P<odd>\s)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(r"""\\(["\\])""")
_OPERATOR = re.compile(r"[\n();<>|&]+")
_ARITHMETIC = re.compile(r"\$\(\([^()]*\)\)")  # the parentheses are no operators
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{"})
_RUNNERS = frozenset({"exec", "env", "nohup", "time", "command", "nice", "setsid", "stdbuf"})
_TIMED = frozenset({"timeout"})  # a runner whose first word is a number
_WITH_VALUE = frozenset({"-W", "-X", "-n", "-u", "-s", "-k", "-o"})  # options of the above
_KEPT = 128  # commands
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


def runs_torchrun(command: str, run_in: str = "auto") -> bool:
    """Whether torchrun is what the command starts its training with."""
    found = launchers(command)
    return run_in == "auto" and bool(found) and all(word in TORCHRUN for word in found)


def counting_launcher(command: str, run_in: str = "auto") -> str:
    """One that counts its nodes when it starts, as all but torchrun and ours do; "" for none.

    Such a launcher is to be run on each node, but no node can join or leave later.
    """
    found = launchers(command)
    if run_in != "auto" or any(word in OURS | OUR_MODULES for word in found):
        return ""
    return next((word for word in found if word not in TORCHRUN), "")


@functools.lru_cache(_KEPT)
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


@functools.lru_cache(_KEPT)  # it is asked for again with each pod of a job
def launchers(command: str) -> tuple[str, ...]:
    """The launcher words of a command, in their order: program names and `-m` modules."""
    return tuple(_launchers(command, _DEPTH))


def _launchers(command: str, depth: int) -> Iterator[str]:
    for words in _simple_commands(_words(command)):
        at = _program_at(words)
        if at == len(words):
            continue
        program = words[at].rpartition("/")[2]
        if program == "accelerate" and words[at + 1 : at + 2] != [_LAUNCH]:
            continue
        if program in OURS | OTHERS:
            yield program
        elif _PYTHON.fullmatch(program):
            if (module := _module(words, at + 1)) in OUR_MODULES | OTHER_MODULES:
                yield module
        elif program in _SHELLS and depth:
            yield from _launchers(_script(words, at + 1), depth - 1)


def _words(command: str) -> list[str]:
    """Words and operators; a line's end is one. Its time grows with the length, and no faster."""
    found: list[str] = []
    word: list[str] = []  # the pieces of one
    at = 0
    while at < len(command):
        piece = _PIECE.match(command, at)
        if piece is None:  # a quote that does not end: the shell will say so
            return command.split()
        at = piece.end()
        if piece["space"] or piece["operator"]:
            found += ["".join(word)] if word else []
            found += [piece["operator"]] if piece["operator"] else []
            word = []
        elif piece["double"] is not None:
            word.append(_ESCAPED.sub(r"\1", piece["double"]))
        else:
            word.append(piece["plain"] or piece["single"] or piece["escaped"] or "")
    return [*found, "".join(word)] if word else found


def _simple_commands(words: list[str]) -> Iterator[list[str]]:
    """The words that follow each command position, up to the next one."""
    current: list[str] = []
    last = ""
    comment = False
    for word in words:
        comment = (comment or word.startswith("#")) and "\n" not in word
        if comment:
            continue
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
    return bool(set(operator) & set(";|&\n")) or ("(" in operator and not before.endswith("$"))


def _program_at(words: list[str]) -> int:
    """After what stands before the program: assignments, `exec`, `env A=1`, `timeout 10`."""
    at = 0
    while at < len(words):
        word = words[at].rpartition("/")[2]
        if _ASSIGNMENT.fullmatch(words[at]) or word in _KEYWORDS:
            at += 1
        elif word in _RUNNERS:
            at = _after_options(words, at + 1)
        elif word in _TIMED:
            at = _after_options(words, at + 1) + 1
        else:
            return at
    return len(words)


def _after_options(words: list[str], at: int) -> int:
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    return at


def _module(words: list[str], at: int) -> str:
    """What `python WORDS` runs with -m; "" if that is a file or nothing."""
    while at < len(words) and words[at].startswith("-"):
        if words[at].startswith("-m"):
            return words[at][2:] or (words[at + 1] if len(words) > at + 1 else "")
        at += 2 if words[at] in _WITH_VALUE - {"-u", "-s"} else 1
    return ""


def _script(words: list[str], at: int) -> str:
    """The text that `sh WORDS` is given with -c; "" if it is given a file."""
    for number in range(at, len(words)):
        if not words[number].startswith("-"):
            return ""
        if re.fullmatch(r"-[a-z]*c", words[number]):
            return words[number + 1] if len(words) > number + 1 else ""
    return ""
