"""A file that is made of the record of a run or a job: where it comes from, and where it goes.

The machinery of `plot` and `report`. On a cluster the record is in the launcher's pod, so the verb
runs there, and the file has to come through stdout. A file is replaced as a whole or not at all.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from midflight import atomic_file
from midflight.cli import flags, messages
from midflight.cli.runs import find_training, run_in_pod
from midflight.errors import JobFailed, UsageError
from midflight.flight.records import Record
from midflight.run.hosted import hosted
from midflight.rundir import read_records

STDOUT = "-"


@dataclass(frozen=True)
class Kind:
    verb: str
    what: str  # as people call it: "picture"
    default: str  # file
    format: str  # "SVG"

    @property
    def suffix(self) -> str:
        return Path(self.default).suffix


def make(kind: Kind, options: argparse.Namespace, render: Callable[[Sequence[Record]], str]) -> int:
    target = options.file
    if target != STDOUT and Path(target).suffix != kind.suffix:
        raise UsageError(
            f"wanted a file that ends in {kind.suffix}, or - for stdout, got {target!r}: the "
            f"{kind.what} is an {kind.format}, which every browser shows"
        )
    if "/" in options.run:
        found = read_records(Path(options.run))
    else:
        words = (kind.verb, options.run, "-o", target)
        if (code := run_in_pod(options.said_namespace, options.run, words)) is not None:
            return code
        _refuse_in_pod(kind, options.run, target)
        found = find_training(options.run, options.said_namespace).folder.read_flight_log()
    if not found:
        raise JobFailed(
            f"there is no record of {options.run} yet; its coordinator begins one as it starts"
        )
    _write(render(found), target)
    return 0


def _refuse_in_pod(kind: Kind, run: str, target: str) -> None:
    inside = hosted(os.environ)
    if inside is not None and inside.may_move and target != STDOUT:
        command = f"{messages.program()} {kind.verb} {run} -o - > {target}"
        raise UsageError(
            f"{target} would stay in the launcher's pod; `{command}` brings the {kind.what} to you"
        )


def _write(text: str, target: str) -> None:
    if target == STDOUT:
        sys.stdout.write(text)
        return
    try:
        atomic_file.write(Path(target), text.encode(), mode=0o644)
    except OSError as error:
        raise JobFailed(f"cannot write {target}: {error.strerror}") from None
    messages.info(f"wrote {target}")


def add(parser: flags.VerbParser, kind: Kind) -> None:
    """The arguments of such a verb."""
    add = parser.add_argument
    add("run", metavar="RUN|JOB", help="a run, a job, or the path of a record (./flight.jsonl)")
    add(
        "-o",
        "--output",
        dest="file",
        default=kind.default,
        metavar="FILE",
        help=f"where to write the {kind.format} (default: {kind.default}); - for stdout",
    )
