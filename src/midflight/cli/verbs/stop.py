"""`midflight stop RUN`: ends a run in good order, also one whose launcher was killed.

The coordinator is asked to end it. If that is gone as well, and no launcher is there to start
another, the agents that are left are killed, and the run counts as over.
"""

import asyncio
from collections.abc import Sequence

from midflight import async_timeout, durations
from midflight.backoff import LOOK
from midflight.cli import flags, messages
from midflight.cli.runs import client_of, known_run
from midflight.coordinator.audit import AuditTrail, this_process
from midflight.deadlines import RUN_GONE
from midflight.errors import JobFailed, Unreachable
from midflight.protocol.audit import LOCAL
from midflight.run.claim import end_abandoned, has_launcher
from midflight.run.processes import find_agents
from midflight.run.record import OVER, last_status, read_record
from midflight.rundir import RunDir


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    folder = known_run(options.run)
    last = last_status(folder)
    if last is not None and last.phase in OVER:
        print(f"the run {options.run} is over already ({last.phase})")
        return 0
    try:
        asyncio.run(_stop(folder, options.timeout))
    except TimeoutError:
        raise JobFailed(
            f"the run {options.run} has not ended within {options.timeout:g} s; "
            f"`{messages.program()} status {options.run}` shows how it stands"
        ) from None
    print(f"the run {options.run} has ended")
    return 0


async def _stop(folder: RunDir, timeout: float) -> None:
    reason = f"stopped by `{messages.program()} stop`"
    async with async_timeout.timeout(timeout):
        while True:
            try:
                await client_of(folder).stop(reason)
                break
            except Unreachable:  # killed, or being started again by its launcher
                if not has_launcher(folder):
                    end_abandoned(folder, reason)
                    _note(folder, reason)
                    break
            await asyncio.sleep(LOOK)
        while not _is_over(folder):  # noqa: ASYNC110 - other processes end without an event
            await asyncio.sleep(LOOK)


def _note(folder: RunDir, reason: str) -> None:
    """There is no coordinator to write this into the run's audit trail."""
    trail = AuditTrail(folder.path.name, folder.audit)
    trail.stop(this_process(), LOCAL, reason)
    trail.close()


def _is_over(folder: RunDir) -> bool:
    token_file = str(folder.token_file.absolute())
    if find_agents(read_record(folder).agents, token_file) or has_launcher(folder):
        return False
    last = last_status(folder)
    return last is None or last.phase in OVER


def parser() -> flags.VerbParser:
    made = flags.VerbParser("stop", "Ends a run, also one whose launcher was killed.")
    made.add_argument("run", metavar="RUN", help="name of the run")
    made.add_argument(
        "--timeout",
        type=durations.parse,
        default=RUN_GONE,
        metavar="TIME",
        help="how long to wait for its end (default 1m)",
    )
    return made
