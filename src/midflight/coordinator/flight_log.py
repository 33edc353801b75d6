"""The record of a run: `flight.jsonl` in its folder, for this user alone, written here only.

It is written in a thread, so that no disk holds up the coordinator, and its size is bounded: how
far training has come is noted once a second in the first hour and ever more seldom afterwards.
Times continue where the file ends when another coordinator takes the run up, whatever the clock of
the machine says.
"""

import time
from collections.abc import Callable
from pathlib import Path

from midflight import terminal
from midflight.coordinator.core import events
from midflight.coordinator.core.state import State
from midflight.coordinator.flight_records import records
from midflight.flight.records import (
    Begun,
    Logged,
    Paused,
    Progress,
    Record,
    Resumed,
    as_line,
    parse,
)
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import Beat, MemberFinished, MemberLogged, MemberPaused
from midflight.sink import Files, older

MOST_WRITTEN = 64 << 20  # bytes; then a new file is begun, and one older is kept
NOTE_SECONDS = 1.0
NOTE_SHARE = 1 / 3600  # of the time that has passed
LAST_BYTES = 1 << 16  # of a file, in which the last time is looked for
MOST_VALUES = 64  # of one call of job.log
LONGEST_NAME = 100


class Cadence:
    """When something that happens all the time is noted again: the longer it lasts, the rarer."""

    def __init__(self) -> None:
        self._noted = float("-inf")

    def is_due(self, t: float) -> bool:
        if t - self._noted < max(NOTE_SECONDS, t * NOTE_SHARE):
            return False
        self._noted = t
        return True


class FlightLog:
    def __init__(self, write: Callable[[str], None], origin: float) -> None:
        """`origin`: the beginning of the run on the clock of the events."""
        self._write = write
        self._origin = origin
        self._progress = Cadence()
        self._logged = Cadence()
        self._latest = Progress(0.0, 0, 0)
        self._noted = self._before = self._latest  # the last in the file, and the one before it
        self._kept: Logged | None = None  # the latest of job.log, if it is not in the file
        self.values: dict[str, float | None] = {}

    def add(self, record: Record) -> None:
        self._write(as_line(record))

    def decided(self, before: State, after: State, event: events.Event) -> None:
        found = records(before, after, event, event.now - self._origin)
        if found:
            self._note()  # what was done until now was done in the world until now
            self._note_logged()
        for record in found:
            self.add(record)

    def heard(self, said: Beat | MemberFinished, now: float) -> None:
        """A member says how far the job is."""
        if said.step > self._latest.step:
            self._latest = Progress(now - self._origin, said.step, said.samples)
            if self._progress.is_due(self._latest.t):
                self._note()

    def _note(self) -> None:
        if self._latest.step > self._noted.step:
            self._before, self._noted = self._noted, self._latest
            self.add(self._latest)

    def paused(self, member: str, said: MemberPaused, now: float) -> None:
        t = now - self._origin
        self.add(Paused(t, member, said.generation, said.step, said.planned, said.pause))

    def logged(self, said: MemberLogged, now: float) -> None:
        few = list(said.values.items())[:MOST_VALUES]
        self.values = {name[:LONGEST_NAME]: value for name, value in few}
        t = now - self._origin
        self._kept = Logged(t, said.step, said.epoch, self.values)
        if self._logged.is_due(t):
            self._note_logged()

    def _note_logged(self) -> None:
        if self._kept is not None:
            self.add(self._kept)
            self._kept = None

    def rates(self, now: float) -> tuple[float, float]:
        """Steps and samples per second, lately."""
        latest, before, t = self._latest, self._before, now - self._origin
        elapsed = latest.t - before.t
        if t - latest.t > elapsed + NOTE_SECONDS:  # nothing has been done for a while
            elapsed = t - before.t
        if elapsed <= 0:
            return 0.0, 0.0
        return (latest.step - before.step) / elapsed, (latest.samples - before.samples) / elapsed


def nowhere(line: str) -> None:
    """For a coordinator that has no folder."""


def open_log(path: Path, files: Files, spec: JobSpec, now: float) -> FlightLog:
    """Continue the file, or begin it."""
    last = _last_time(path) or _last_time(older(path))
    if last is None:
        log = FlightLog(lambda line: files.put(path, [line]), now)
        log.add(Begun(0.0, spec.name, time.time(), spec.np, spec.min_np, spec.max_np))
        return log
    t, written = last
    t += max(0.0, time.time() - written)
    log = FlightLog(lambda line: files.put(path, [line]), now - t)
    files.put(path, [""])  # the last line may have been cut off
    log.add(Resumed(t))
    return log


def log_files(path: Path) -> Files:
    return Files(terminal.report_unwritten(str(path)), MOST_WRITTEN, mode=0o600)


def _last_time(path: Path) -> tuple[float, float] | None:
    """When the last record was made, on the run's clock and on the wall; None: there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LAST_BYTES))
            found = parse(file.read().decode("ascii", "replace").split("\n"))
            return (found[-1].t, path.stat().st_mtime) if found else None
    except OSError:
        return None
