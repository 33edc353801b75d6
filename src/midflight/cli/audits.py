"""An audit as the command line makes and shows it: from the ledgers in a folder to a verdict."""

from dataclasses import dataclass, replace
from pathlib import Path

from midflight.cli.output import table
from midflight.errors import UsageError
from midflight.quantities import counted
from midflight.rundir import FORMER
from midflight.runtime.data.audit import (
    Chain,
    Comparison,
    EpochReport,
    Record,
    Report,
    compare,
    follow,
    judge,
    parse,
    parse_comparisons,
    parse_resumed,
)

SHOWN = 10  # problems; the rest is in the JSON
_HEAD = ("EPOCH", "SAMPLES", "STEPS", "WORLDS", "MEMBERS", "REPEATED", "MISSING", "DUPLICATED")


def audit(folder: Path, samples: int | None = None, *, resumed: bool = False) -> Report | None:
    """None if the ledgers hold no step. `resumed`: look at no run before this one."""
    ledgers = read_ledgers(folder)
    if not ledgers.records:
        return None
    chain = Chain(ledgers.records, complete=False) if resumed else _chain(folder, ledgers)
    report = judge(chain.records, samples=samples, resumed=not chain.complete)
    differences, notes = compare(ledgers.comparisons)
    problems = (*ledgers.damage, *differences, *report.problems)
    return replace(report, problems=problems, notes=(*chain.notes, *notes))


@dataclass(frozen=True)
class Ledgers:
    """What the members of one run have written down."""

    records: list[Record]
    comparisons: list[Comparison]
    resumed: frozenset[int]  # the steps with which members say that the run began
    damage: list[str]


def read_ledgers(folder: Path) -> Ledgers:
    records: list[Record] = []
    comparisons: list[Comparison] = []
    resumed: set[int] = set()
    problems: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            text = path.read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise UsageError(f"cannot read the ledger {path}: {error.strerror}") from None
        found, damage = parse(path.stem, text)
        records += found
        comparisons += parse_comparisons(path.stem, text)
        resumed |= parse_resumed(text)
        problems += damage
    return Ledgers(records, comparisons, frozenset(resumed), problems)


def _chain(folder: Path, ledgers: Ledgers) -> Chain:
    """With the runs before it, as far back as each began with a checkpoint."""
    before = folder / FORMER
    former = None
    if ledgers.resumed and before.is_dir():
        former = _chain(before, read_ledgers(before))
    return follow(former, ledgers.records, ledgers.resumed)


def as_text(report: Report) -> str:
    epochs = table(_HEAD, [_row(epoch) for epoch in report.epochs])
    return f"{epochs}\n\n{findings(report)}"


def findings(report: Report) -> str:
    """What is wrong, what is of note, and the verdict."""
    blocks = []
    for lines in (report.problems, report.notes):
        if lines:
            shown = [f"- {line}" for line in lines[:SHOWN]]
            rest = len(lines) - SHOWN
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
        return "nothing is missing or duplicated, but the members do not agree: see above"
    samples = sum(epoch.samples for epoch in report.epochs)
    steps = sum(epoch.steps for epoch in report.epochs)
    used = f"{counted(samples, 'sample')} in {counted(steps, 'step')}"
    line = f"every sample was used exactly once: {used}"
    if report.vouched:
        line += (
            f"\n({report.vouched} of {report.shares} shares have no record of their own; the other "
            "members of the step vouch for them)"
        )
    return line
