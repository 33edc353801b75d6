"""`midflight audit RUN|JOB`: says from the members' ledgers whether every sample was used once.

The exit code is 0 only if nothing is missing, nothing was used twice, and the ledgers agree.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from midflight.cli import flags, output
from midflight.cli.audits import as_text, audit
from midflight.cli.runs import Training, find_training, run_in_pod
from midflight.errors import JobFailed, UsageError
from midflight.protocol import codec
from midflight.run.hosted import hosted
from midflight.run.options import LEDGER_DIR, NO_LEDGERS


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    is_folder = "/" in options.run
    if not is_folder:
        words = ["audit", options.run, "-o", options.output or "wide"]
        words += ["--samples", str(options.samples)] if options.samples else []
        words += ["--resumed"] if options.resumed else []
        if (code := run_in_pod(options.said_namespace, options.run, words)) is not None:
            return code
    training = None if is_folder else find_training(options.run, options.said_namespace)
    folder = Path(options.run) if training is None else training.ledgers
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder} with ledgers in it")
    report = audit(folder, options.samples, resumed=options.resumed)
    if report is None:
        raise JobFailed(_empty(options.run, folder, training))
    view = {"run": options.run, "ok": report.ok, **codec.as_view(report)}
    if not output.data(options.output, view, [options.run]):
        print(as_text(report))
    return 0 if report.ok else 1


def _empty(run: str, folder: Path, training: Training | None) -> str:
    if training is not None and not training.folder.read_spec().ledger:
        return f"{run} keeps no ledgers: --ledger-dir or {LEDGER_DIR} was {NO_LEDGERS}"
    inside = hosted(os.environ)
    if inside is not None and inside.may_move and folder.is_relative_to(inside.folder):
        return (
            "the members of this job write their ledgers in their own pods, where nobody else "
            f"can read them: submit it with -e {LEDGER_DIR}=FOLDER, on a volume that all of them "
            "share"
        )
    return (
        f"the ledgers of {run} hold no step yet; only steps whose data comes from "
        "job.batches() or job.follow() are written down"
    )


def parser() -> flags.VerbParser:
    parser = flags.VerbParser(
        "audit", "Proves from the members' ledgers that every sample was used exactly once."
    )
    add = parser.add_argument
    add(
        "run",
        metavar="RUN|JOB",
        help="a run, a job, or a folder with ledgers (./FOLDER)",
    )
    output.add(parser)
    add(
        "--samples",
        type=_samples,
        metavar="N",
        help="samples in an epoch (default: as many as the longest epoch used)",
    )
    flags.switch(
        parser,
        "--resumed",
        help="the run began from a checkpoint: ignore what lies before its first step",
    )
    return parser


def _samples(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"wanted a number of samples, 1 or more, got {text!r}")
    return int(text)
