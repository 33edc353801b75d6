"""The terminal of a program: lines on stderr, errors, exit codes, and a stdout that is gone.

An error is one line, `midflight: error: ...`, that says what was wanted, what came and what to do.
Exit codes: 2 when the command line is wrong, 1 when something else is, 130 after Ctrl-C, 141 when
whoever read the output has closed it.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from midflight import terminal
from midflight.errors import JobFailed, MidflightError, UsageError


def say(line: str) -> None:
    """Never waits for whoever reads it: the launcher says things while it looks after a job."""
    terminal.say(line)


def exit_code_of(work: Callable[[], int]) -> int:
    """Do the work; errors that are Midflight's own become one line and an exit code."""
    try:
        return _do(work)
    finally:
        terminal.drain()


def _do(work: Callable[[], int]) -> int:
    try:
        code = work()
        sys.stdout.flush()
        return code
    except MidflightError as error:
        say(f"error: {error}")
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read this has seen enough, as in `midflight list | head -1`
        discard_stdout()
        return 141


def discard_stdout() -> None:
    """Send the rest to nobody, so that Python does not fail on it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_missing_streams() -> None:
    """A program may be started without them (`>&-`); then nobody wants to read them."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def write_answer(work: Callable[[], int]) -> int:
    """Do the work and flush what it has printed; a full disk is one line instead of a trace."""
    try:
        code = work()
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:  # it is about another file
            raise
        discard_stdout()
        raise JobFailed(
            f"cannot write the answer: {error.strerror}; check the disk it goes to"
        ) from None
    return code


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by the command, which keeps the terminal and gives the exit code."""
    try:
        os.execvpe(command[0], list(command), environment)
    except FileNotFoundError:
        raise UsageError(f"cannot run {command[0]!r}: there is no such program") from None
    except OSError as error:
        raise JobFailed(f"cannot run {command[0]!r}: {error.strerror}") from None


def user_shell(environ: Mapping[str, str]) -> str:
    return environ.get("SHELL") or "/bin/sh"
