"""`midflight run`: claim the name, then supervise until the job is over; its exit code is ours."""

import asyncio
import os
import sys
from collections.abc import Sequence

from midflight.console import exit_code_of, say
from midflight.run.claim import Claim, claim
from midflight.run.options import Options, parse
from midflight.run.supervise import Supervisor


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _launch(parse(argv, dict(os.environ))))


def _launch(options: Options) -> int:
    code = supervise(options, claim(options))
    sum_up(options, watched=sys.stderr.isatty())
    return code


def sum_up(options: Options, watched: bool) -> None:
    """For whoever has watched the run until now."""
    if not watched or options.hosted is not None:
        return
    from midflight.flight import summary
    from midflight.flight.plan import plan

    if found := summary.lines(plan(options.folder.read_flight_log())):
        for line in found:
            say(line)
        say(f"`midflight plot {options.spec.name}` draws it")


def supervise(options: Options, claim: Claim) -> int:
    """Until the job is over; its exit code."""
    return asyncio.run(Supervisor(options, claim).run())
