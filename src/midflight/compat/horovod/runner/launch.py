"""`horovodrun`: parse, run, and end with the words and the exit code that its users know.

Exit codes: 0 when all processes ended with 0, 1 when the job failed or cannot be, 2 when the
command line is wrong, 130 and 143 after a signal. The name of this module is Horovod's.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from midflight import terminal
from midflight.compat.horovod.runner import build_table, config_file, flags, messages
from midflight.compat.horovod.runner.options import is_elastic, options
from midflight.errors import MidflightError, ScriptFailed, UsageError
from midflight.run.claim import claim
from midflight.run.hosted import MEMBER
from midflight.run.interrupts import EXIT_CODES
from midflight.run.main import supervise
from midflight.run.options import Options
from midflight.run.record import saved_state


def run_commandline() -> None:
    sys.exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    outcome: list[str] = []  # the file for it, once it is known
    try:
        return _main(sys.argv[1:] if argv is None else argv, outcome)
    except ScriptFailed as error:
        words = {"script": error.script, "code": messages.status(error.code)}
        return _failed(messages.DISCOVERY_FAILED.format(**words), 1, outcome)
    except MidflightError as error:
        return _failed(str(error), 2 if isinstance(error, UsageError) else 1, outcome)
    except KeyboardInterrupt:
        return 130


def _main(argv: Sequence[str], outcome: list[str]) -> int:
    given = flags.parse(argv)
    if given.midflight_outcome:
        outcome.append(given.midflight_outcome)
    if given.check_build:
        print(build_table.table(build_table.ask()), flush=True)
        return 0
    if os.environ.get(MEMBER):
        raise UsageError(
            "horovodrun was started inside a worker: the job's command names no launcher, so it "
            "was run in every worker; submit it with --run-in launcher"
        )
    if given.config_file is not None:
        config_file.fill_in(given, given.config_file)
    wanted = options(given, dict(os.environ))
    _tell_ignored(given)
    return _run(wanted, outcome)


def _run(wanted: Options, outcome: list[str]) -> int:
    claimed = claim(wanted)
    code = supervise(wanted, claimed)
    if code != 0 and code not in EXIT_CODES.values():
        words = messages.last_words(
            saved_state(claimed.store, wanted.spec.name, wanted.folder.read_token())
        )
        terminal.err(words.rstrip("\n").split("\n"))
        _note(words, outcome)
    return code


def _tell_ignored(given: argparse.Namespace) -> None:
    ignored = [flag for name, flag in flags.WITHOUT_MEANING.items() if getattr(given, name)]
    if given.max_num_proc is not None and not is_elastic(given):
        ignored.append("--max-np (without --min-np or a discovery script the size is fixed)")
    if ignored:
        _say(f"ignored, it has no meaning here: {', '.join(ignored)}")


def _failed(words: str, code: int, outcome: list[str]) -> int:
    _say(f"error: {words}")
    _note(words, outcome)
    return code


def _note(words: str, outcome: list[str]) -> None:
    """For whoever has started this and wants to raise it as an error."""
    for path in outcome:
        Path(path).write_text(words, encoding="utf-8")


def _say(line: str) -> None:
    terminal.err([f"horovodrun: {line}"])


if __name__ == "__main__":
    run_commandline()
