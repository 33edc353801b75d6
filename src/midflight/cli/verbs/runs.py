"""`midflight runs`: the runs of this machine, newest first, those that have ended included.

A run that is neither over nor answers was interrupted: the same `midflight run` takes it up again,
and `midflight stop` ends it for good.
"""

import asyncio
import os
import shlex
import time
from collections.abc import Sequence
from typing import TypedDict

from midflight import durations
from midflight.cli import flags, output
from midflight.cli.runs import Training, client_of, known_runs
from midflight.errors import MidflightError
from midflight.run.record import OVER, last_status
from midflight.rundir import RunDir

_COLUMNS = ("NAME", "STATUS", "MEMBERS", "STEP", "AGE", "COMMAND")
_LONGEST = 40  # of a command in the table


class RunView(TypedDict):
    name: str
    status: str  # the phase, or "interrupted", or "unknown"
    members: int
    wanted: int
    step: int
    age: float  # seconds since it was begun
    command: str
    folder: str


def main(argv: Sequence[str]) -> int:
    options = parser().read(argv)
    found = asyncio.run(_views())
    if not output.data(options.output, found, (run["name"] for run in found)):
        print(output.table(_COLUMNS, [_row(run, wide=options.output == "wide") for run in found]))
    return 0


async def _views() -> list[RunView]:
    folders = [RunDir.of(name, os.environ) for name in known_runs()]
    found = await asyncio.gather(*(_view(folder) for folder in folders))
    return sorted(found, key=lambda run: run["age"])


async def _view(folder: RunDir) -> RunView:
    spec = folder.read_spec()
    view: RunView = {
        "name": folder.path.name,
        "status": "unknown",
        "members": 0,
        "wanted": spec.np,
        "step": 0,
        "age": time.time() - Training(folder.path.name, folder).began,
        "command": shlex.join(spec.command),
        "folder": str(folder.path),
    }
    try:
        try:
            status = await client_of(folder).status()
            view["status"], view["members"] = status.phase, len(status.members)
        except MidflightError:
            last = last_status(folder)
            if last is None:
                return view
            status = last
            view["status"] = last.phase if last.phase in OVER else "interrupted"
    except MidflightError:  # of the store, which may be elsewhere and away
        return view
    view["wanted"], view["step"] = status.wanted, status.step
    return view


def _row(run: RunView, *, wide: bool) -> tuple[object, ...]:
    command = run["command"]
    if not wide and len(command) > _LONGEST:
        command = f"{command[: _LONGEST - 3]}..."
    size = f"{run['members']}/{run['wanted']}"
    return run["name"], run["status"], size, run["step"], durations.shown(run["age"]), command


def parser() -> flags.VerbParser:
    made = flags.VerbParser("runs", "Lists the runs of this machine, newest first.")
    output.add(made)
    return made
