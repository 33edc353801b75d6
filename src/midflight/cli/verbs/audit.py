"""`midflight audit RUN`: reads the members' ledgers and says whether every sample was used once.

The exit code is 0 only if nothing is missing, nothing was used twice, and the ledgers agree.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from midflight.arguments import Parser
from midflight.cli.output import table
from midflight.cli.runs import find_run, known_runs, run_in_pod
from midflight.errors import JobFailed, UsageError
from midflight.run.hosted import hosted
from midflight.run.options import LEDGER_DIR, NO_LEDGERS
from midflight.runtime.audit import EpochReport, Record, Report, judge, parse

SHOWN = 10  # problems; the rest is in the JSON
_HEAD = ("EPOCH", "SAMPLES", "STEPS", "WORLDS", "MEMBERS", "REPEATED", "MISSING", "DUPLICATED")


def main(argv: Sequence[str]) -> int:
    options = parser().parse_args(argv)
    if "/" not in options.run and options.run not in known_runs():
        words = ("audit", *argv)
        if (code := run_in_pod(options.namespace, options.run, words)) is not None:
            return code
    folder = _ledgers(options.run)
    records, damage = read_ledgers(folder)
    if not records:
        raise JobFailed(_empty(options.run, folder))
    report = judge(records, samples=options.samples, resumed=options.resumed)
    report = Report(report.epochs, report.shares, report.vouched, (*damage, *report.problems))
    print(as_json(options.run, report) if options.output == "json" else as_text(report))
    return 0 if report.ok else 1


def _ledgers(run: str) -> Path:
    if "/" not in run:
        folder = find_run(run)
        return Path(folder.read_spec().ledger or folder.ledgers)
    if not Path(run).is_dir():
        raise UsageError(f"there is no folder {run} with ledgers in it")
    return Path(run)


def _empty(run: str, folder: Path) -> str:
    if "/" not in run and not find_run(run).read_spec().ledger:
        return f"{run} keeps no ledgers: --ledger-dir or {LEDGER_DIR} was {NO_LEDGERS}"
    inside = hosted(os.environ)
    if inside is not None and inside.may_move and folder.is_relative_to(inside.folder):
        return (
            "the members of this job write their ledgers in their own pods, where nobody else "
            f"reads them: submit it with -e {LEDGER_DIR}=FOLDER, on a volume that all of them share"
        )
    return (
        f"the ledgers of {run} hold no step yet; only steps whose data comes from "
        "job.batches() or job.follow() are written down"
    )


def read_ledgers(folder: Path) -> tuple[list[Record], list[str]]:
    """The records of all members, and what is wrong with their files."""
    records: list[Record] = []
    problems: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise UsageError(f"cannot read the ledger {path}: {error.strerror}") from None
        found, damage = parse(path.stem, text)
        records += found
        problems += damage
    return records, problems


def as_json(run: str, report: Report) -> str:
    return json.dumps({"run": run, "ok": report.ok, **asdict(report)}, indent=2)


def as_text(report: Report) -> str:
    blocks = [table(_HEAD, [_row(epoch) for epoch in report.epochs])]
    if report.problems:
        shown = [f"- {problem}" for problem in report.problems[:SHOWN]]
        rest = len(report.problems) - SHOWN
        blocks.append("\n".join([*shown, *([f"- and {rest} more"] if rest > 0 else [])]))
    return "\n\n".join([*blocks, _verdict(report)])


def _row(epoch: EpochReport) -> tuple[object, ...]:
    sizes = sorted({epoch.smallest, epoch.largest})
    return (
        f"{epoch.epoch}, so far" if epoch.under_way else epoch.epoch,
        epoch.samples,
        epoch.steps,
        epoch.worlds,
        " to ".join(map(str, sizes)),
        epoch.repeated,
        epoch.missing,
        epoch.duplicated,
    )


def _verdict(report: Report) -> str:
    if report.missing or report.duplicated:
        return (
            f"NOT every sample was used exactly once: {report.missing} missing, "
            f"{report.duplicated} duplicated"
        )
    if report.problems:
        return "nothing is missing or duplicated, but the ledgers do not agree: see above"
    samples = sum(epoch.samples for epoch in report.epochs)
    steps = sum(epoch.steps for epoch in report.epochs)
    line = f"every sample was used exactly once: {samples} samples in {steps} steps"
    if report.vouched:
        line += (
            f"\n({report.vouched} of {report.shares} shares have no record of their own; the other "
            "members of the step vouch for them)"
        )
    return line


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="midflight audit",
        description="Proves from the members' ledgers that every sample was used exactly once.",
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="a run, a job that trains, or a folder with ledgers (./FOLDER)")
    add("-n", "--namespace", default="", metavar="NS", help="of a job on a cluster")
    add(
        "-o",
        "--output",
        choices=("wide", "json"),
        default="wide",
        help="output format (default wide)",
    )
    add(
        "--samples",
        type=_samples,
        metavar="N",
        help="samples in an epoch (default: as many as the longest epoch used)",
    )
    add(
        "--resumed",
        action="store_true",
        help="the run began from a checkpoint: ignore what lies before its first step",
    )
    return parser


def _samples(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"wanted a number of samples, 1 or more, got {text!r}")
    return int(text)
