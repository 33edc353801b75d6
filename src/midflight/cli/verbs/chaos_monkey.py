"""`midflight chaos monkey RUN|JOB`: strikes a training of yours on this machine, and audits it.

Each strike goes to stderr as it happens. At the end the report and the audit go to stdout; the exit
code is 0 only if training went on after each strike and every sample was used once. Ctrl-C ends it
early, with the same report.
"""

import asyncio
import os
import secrets
import signal
from collections.abc import Sequence

from midflight import durations
from midflight.chaos.choice import ACTIONS
from midflight.chaos.monkey import Monkey, Plan
from midflight.chaos.report import HEADER, Report
from midflight.chaos.sizes import JobSizes, RunSizes, Sizes
from midflight.chaos.strikes import FILL_LIMIT, Strikes
from midflight.cli import audits, flags, messages, output
from midflight.cli.cluster import connect, is_kubernetes
from midflight.cli.runs import Training, client_of, find_training
from midflight.deadlines import RECOVERY
from midflight.errors import Refused, UsageError
from midflight.protocol import codec
from midflight.quantities import quantity
from midflight.runtime.data.audit import Report as Audit

REST = 5.0
INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    if is_kubernetes():
        raise UsageError(
            "the monkey strikes processes of this machine; on a cluster `chaos kill JOB` ends a pod"
        )
    training = find_training(options.training, options.said_namespace)
    _check_own(training)
    sizes = _sizes(training)
    strikes = Strikes(training.folder, sizes, options.fill_limit)
    plan = Plan(
        options.seed if options.seed is not None else secrets.randbelow(1 << 32),
        options.duration,
        options.actions,
        options.mean_rest,
        options.patience,
        options.reckless,
    )
    client = client_of(training.folder)
    monkey = Monkey(training.folder, client, sizes, strikes, plan)
    messages.plain(f"striking {training} for {options.duration:g} s, seed {plan.seed}")
    interrupted = _run(monkey, strikes)
    found = audits.audit(training.ledgers)
    show(options.output, options.training, monkey.report, found)
    if interrupted:
        return INTERRUPTED
    return 0 if not monkey.report.broke and found is not None and found.ok else 1


def _run(monkey: Monkey, strikes: Strikes) -> bool:
    """Whether somebody ended it."""

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await monkey.run(messages.plain)

    try:
        asyncio.run(run())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return True
    finally:
        strikes.close()
    return False


def _check_own(training: Training) -> None:
    owner = training.folder.path.stat().st_uid
    if owner != os.geteuid():
        raise Refused(f"{training} belongs to another user (uid {owner}); strike your own")


def _sizes(training: Training) -> Sizes:
    if training.namespace is None:
        return RunSizes(client_of(training.folder))
    return JobSizes(connect(), training.namespace, training.name)


def show(form: str, training: str, report: Report, audit: Audit | None) -> None:
    audited = {"ok": audit.ok, **codec.as_view(audit)} if audit else None
    if output.data(form, {**report.as_view(), "audit": audited}, [training]):
        return
    print(output.table(HEADER, report.rows()))
    for action, reason in report.impossible.items():
        print(f"\n{action} was not possible: {reason}")
    print(f"\n{audits.findings(audit) if audit else 'its ledgers hold no step to audit'}")
    print(f"\nseed {report.seed}: {report.verdict}")


def _actions(text: str) -> list[str]:
    words = list(dict.fromkeys(text.split(",")))
    if unknown := [word for word in words if word not in ACTIONS]:
        raise UsageError(f"--actions wants some of {','.join(ACTIONS)}; got {', '.join(unknown)!r}")
    return words


def parser() -> flags.VerbParser:
    made = flags.VerbParser(
        "chaos monkey", "Strikes a training of yours on this machine, and audits it."
    )
    add = made.add_argument
    add("training", metavar="RUN|JOB", help="name of the run or job")
    add("--seed", type=flags.number, metavar="N", help="chooses the strikes (default: any)")
    add(
        "--for",
        dest="duration",
        type=durations.parse,
        default=60.0,
        metavar="TIME",
        help="how long (default 1m)",
    )
    add(
        "--actions",
        type=_actions,
        default=list(ACTIONS),
        metavar="A,...",
        help=f"of {','.join(ACTIONS)} (default: all)",
    )
    add(
        "--rest",
        dest="mean_rest",
        type=durations.parse,
        default=REST,
        metavar="TIME",
        help="between two strikes, on average (default 5s)",
    )
    add(
        "--patience",
        type=durations.parse,
        default=RECOVERY,
        metavar="TIME",
        help="within which training must continue after a strike (default 2m)",
    )
    add(
        "--fill-limit",
        type=lambda text: int(quantity(text)),
        default=FILL_LIMIT,
        metavar="BYTES",
        help="a disk with more than this free is not filled (default 256Mi)",
    )
    flags.switch(
        made, "--reckless", help="may strike the last member that holds the training state as well"
    )
    output.add(made)
    return made
