"""`midflight plot RUN|JOB`: draws what happened to a run or a job over time, as an SVG file."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from midflight import atomic_file
from midflight.cli import flags, messages
from midflight.cli.runs import find_training, run_in_pod
from midflight.errors import JobFailed, UsageError
from midflight.flight.plan import plan
from midflight.flight.svg import draw
from midflight.run.hosted import hosted
from midflight.rundir import read_records

STDOUT = "-"


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    target = options.file
    if target != STDOUT and Path(target).suffix != ".svg":
        raise UsageError(
            f"wanted a file that ends in .svg, or - for stdout, got {target!r}: the picture is an "
            "SVG, which every browser shows"
        )
    if "/" in options.run:
        found = read_records(Path(options.run))
    else:
        words = ("plot", options.run, "-o", target)
        if (code := run_in_pod(options.said_namespace, options.run, words)) is not None:
            return code
        _refuse_in_pod(options.run, target)
        found = find_training(options.run, options.said_namespace).folder.read_flight_log()
    if not found:
        raise JobFailed(
            f"there is no record of {options.run} yet; its coordinator begins one as it starts"
        )
    _write(draw(plan(found)), target)
    return 0


def _refuse_in_pod(run: str, target: str) -> None:
    inside = hosted(os.environ)
    if inside is not None and inside.may_move and target != STDOUT:
        raise UsageError(
            f"{target} would stay in the launcher's pod; "
            f"`{messages.program()} plot {run} -o - > {target}` brings the picture to you"
        )


def _write(picture: str, target: str) -> None:
    if target == STDOUT:
        sys.stdout.write(picture)
        return
    try:
        atomic_file.write(Path(target), picture.encode(), mode=0o644)
    except OSError as error:
        raise JobFailed(f"cannot write {target}: {error.strerror}") from None
    messages.info(f"wrote {target}")


def parser() -> flags.VerbParser:
    made = flags.VerbParser(
        "plot",
        "Draws the size, the members, the throughput, the loss and the pauses of a run or a job "
        "over time.",
    )
    add = made.add_argument
    add("run", metavar="RUN|JOB", help="a run, a job, or the path of a record (./flight.jsonl)")
    add(
        "-o",
        "--output",
        dest="file",
        default="flight.svg",
        metavar="FILE",
        help="where to write the SVG (default: flight.svg); - for stdout",
    )
    return made
