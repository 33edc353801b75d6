"""What an agent hands to a warm standby over their socket: a command line, and where to run it.

The two descriptors for stdout and stderr travel beside it. Which command lines a standby can
stand in for is decided here too: a script or a module on a plain interpreter, nothing cleverer.
"""

import struct
from dataclasses import dataclass

LENGTH = struct.Struct(">I")  # in front of the Work, as JSON
READY = struct.Struct(">I")  # a standby's first and only word: its pid


@dataclass(frozen=True)
class Work:
    command: tuple[str, ...]  # the whole command line, the interpreter first
    environment: dict[str, str]
    directory: str

    @property
    def program(self) -> "Program":
        program = parse_command(self.command)
        assert program is not None, "only commands that can be parsed are handed over"
        return program


@dataclass(frozen=True)
class Program:
    interpreter: str
    target: str  # path of a script, or name of a module
    is_module: bool
    arguments: tuple[str, ...]


def parse_command(command: tuple[str, ...]) -> Program | None:
    """`python [-u] (SCRIPT.py | -m MODULE) ARGUMENTS`; None for everything else."""
    if not command:
        return None
    interpreter, *rest = command
    if rest[:1] == ["-u"]:
        rest = rest[1:]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return Program(interpreter, rest[1], True, tuple(rest[2:]))
    if rest and rest[0].endswith(".py") and not rest[0].startswith("-"):
        return Program(interpreter, rest[0], False, tuple(rest[1:]))
    return None
