"""`midflight run`: claim the name, then supervise until the job is over; its exit code is ours."""

import asyncio
import os
from collections.abc import Sequence

from midflight.console import exit_code_of
from midflight.run.claim import Claim, claim
from midflight.run.options import Options, parse
from midflight.run.supervise import Supervisor


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _launch(parse(argv, dict(os.environ))))


def _launch(options: Options) -> int:
    return supervise(options, claim(options))


def supervise(options: Options, claim: Claim) -> int:
    """Until the job is over; its exit code."""
    return asyncio.run(Supervisor(options, claim).run())
