"""`midflight shell [-- COMMAND ...]`: a shell, or one command, in which the old names are found.

horovodrun, torchrun and kungfu-run are on its PATH, horovod and kungfu on its PYTHONPATH; nothing
is installed under those names. The exit code is the command's own.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from midflight import shims
from midflight.cli import flags, messages
from midflight.console import become, user_shell

HINT = "horovodrun, torchrun, kungfu-run, and Python's horovod and kungfu, are Midflight's here"


def main(argv: Sequence[str]) -> int:
    command = _command(argv)
    if not command:
        command = [user_shell(os.environ)]
        messages.plain(f"{HINT}; exit to leave")
    environment = {**os.environ, **shims.environment(_with_python(os.environ))}
    become(command, environment)


def _with_python(environ: Mapping[str, str]) -> dict[str, str]:
    """As in a job, `python` is one that has Midflight, unless that is on the PATH already."""
    folder, path = os.path.dirname(sys.executable), environ.get("PATH") or os.defpath
    parts = path.split(os.pathsep)
    return {**environ, "PATH": path if folder in parts else os.pathsep.join([folder, *parts])}


def _command(argv: Sequence[str]) -> list[str]:
    """From its first word on a command is left as it is, whether `--` came before it or not."""
    if argv and not argv[0].startswith("-"):
        return list(argv)
    options = parser().read(argv)
    return [*options.command, *options.rest]


def parser() -> flags.VerbParser:
    made = flags.VerbParser("shell", f"Starts a shell, or one command: {HINT}.")
    made.add_argument(
        "command", metavar="COMMAND", nargs="*", help="what to run (default: your shell)"
    )
    return made
