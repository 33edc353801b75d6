"""`midflight report RUN|JOB`: one HTML file about a run or a job, for sending to somebody."""

from collections.abc import Sequence

from midflight.cli import flags, flight_files
from midflight.flight.report import render

REPORT = flight_files.Kind("report", "report", "report.html", "HTML page")


def main(argv: Sequence[str]) -> int:
    return flight_files.make(REPORT, parser().read(argv), render)


def parser() -> flags.VerbParser:
    made = flags.VerbParser(
        "report",
        "Writes one HTML file about a run or a job, for sending to somebody: the flight plan, a "
        "summary, and tables of changes, members and events.",
    )
    flight_files.add(made, REPORT)
    return made
