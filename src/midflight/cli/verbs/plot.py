"""`midflight plot RUN|JOB`: draws what happened to a run or a job over time, as an SVG file."""

from collections.abc import Sequence

from midflight.cli import flags, flight_files
from midflight.flight.plan import plan
from midflight.flight.records import Record
from midflight.flight.svg import draw

PICTURE = flight_files.Kind("plot", "picture", "flight.svg", "SVG")


def main(argv: Sequence[str]) -> int:
    return flight_files.make(PICTURE, parser().read(argv), _drawn)


def _drawn(records: Sequence[Record]) -> str:
    return draw(plan(records))


def parser() -> flags.VerbParser:
    made = flags.VerbParser(
        "plot",
        "Draws the size, the members, the throughput, the loss and the pauses of a run or a job "
        "over time.",
    )
    flight_files.add(made, PICTURE)
    return made
