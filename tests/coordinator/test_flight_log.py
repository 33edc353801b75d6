"""`flight.jsonl`: who may read it, how large it grows, and how it goes on after a death."""

import asyncio
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Request, initial
from midflight.coordinator.flight_log import FlightLog, log_files, nowhere, open_log
from midflight.flight.records import Begun, Logged, Paused, Progress, Resumed, parse
from midflight.protocol import messages as say
from midflight.protocol.job import JobSpec
from midflight.protocol.pause import Pause
from midflight.rundir import RunDir
from tests.coordinator.served import next_of, served

SPEC = JobSpec("job", ("python", "train.py"), np=2, min_np=1, max_np=4)


def beat(step: int, samples: int = 0) -> say.Beat:
    return say.Beat(step, step, waiting=False, samples=samples)


class Written:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log = FlightLog(self.lines.append, 100.0)

    def of(self, kind: type) -> list[Any]:
        return [record for record in parse(self.lines) if isinstance(record, kind)]


def test_the_record_is_for_its_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = RunDir(tmp_path)
        files = log_files(folder.flight_log)
        open_log(folder.flight_log, files, SPEC, 100.0)
        files.close()
    finally:
        os.umask(old)
    assert folder.flight_log.stat().st_mode & 0o777 == 0o600
    (begun,) = folder.read_flight_log()
    assert isinstance(begun, Begun) and (begun.t, begun.name, begun.np) == (0.0, "job", 2)


def test_progress_is_noted_once_a_second_and_ever_more_seldom() -> None:
    written = Written()
    for second in range(7200 * 10):
        written.log.heard(beat(second + 1), 100.0 + second / 10)
    times = [record.t for record in written.of(Progress)]
    gaps = [b - a for a, b in pairwise(times)]
    assert min(gaps) >= 0.999
    assert 1.9 < gaps[-1] < 2.2
    assert len(times) < 6200


def test_a_beat_that_tells_nothing_new_is_not_noted() -> None:
    written = Written()
    for now in (100.0, 105.0, 110.0):
        written.log.heard(beat(7, 70), now)
    assert written.of(Progress) == [Progress(0.0, 7, 70)]


def test_what_was_done_is_noted_before_the_world_changes() -> None:
    written = Written()
    written.log.heard(beat(7), 101.0)
    written.log.heard(beat(9), 101.2)
    before = initial(SPEC, 100.0)
    asked = events.Asked(101.3, Request(1, 200.0, to=3, id="r1"))
    written.log.decided(before, replace(before, queue=(asked.request,)), asked)
    assert [each.step for each in written.of(Progress)] == [7, 9]


def test_the_rates_are_those_of_the_last_seconds_and_sink_while_nothing_is_done() -> None:
    written = Written()
    for second in range(11):
        written.log.heard(beat(10 * second + 1, 100 * second), 100.0 + second)
    steps, samples = written.log.rates(110.1)
    assert (round(steps), round(samples)) == (10, 100)
    assert written.log.rates(120.0)[0] < 2
    assert FlightLog(nowhere, 0.0).rates(5.0) == (0.0, 0.0)


def test_the_values_of_a_log_call_are_bounded() -> None:
    written = Written()
    values: dict[str, float | None] = {f"{'n' * 200}{number}": 1.0 for number in range(100)}
    written.log.logged(say.MemberLogged(1, 0, {"loss": None, **values}), 100.5)
    (logged,) = written.of(Logged)
    assert logged.values["loss"] is None
    assert len(logged.values) <= 64
    assert max(map(len, logged.values)) == 100


def test_the_last_values_are_noted_when_something_happens_and_once_only() -> None:
    written = Written()
    for second in range(3):
        written.log.logged(say.MemberLogged(second, 0, {"loss": second}), 100.0 + second / 100)
    assert [logged.values["loss"] for logged in written.of(Logged)] == [0]
    before = initial(SPEC, 100.0)
    asked = events.Asked(101.3, Request(1, 200.0, to=3, id="r1"))
    for _ in range(2):
        written.log.decided(before, replace(before, queue=(asked.request,)), asked)
    assert [logged.values["loss"] for logged in written.of(Logged)] == [0, 2]


def test_another_coordinator_goes_on_where_the_file_ends_whatever_its_clock_says(
    tmp_path: Path,
) -> None:
    path = RunDir(tmp_path).flight_log
    files = log_files(path)
    first = open_log(path, files, SPEC, 5000.0)
    first.heard(beat(1), 5030.0)
    files.close()
    with path.open("a") as file:
        file.write('{"kind": "progress", "t": 31.0, "st')  # it was killed here
    files = log_files(path)
    second = open_log(path, files, SPEC, 3.0)  # a machine that was started a moment ago
    second.heard(beat(2), 4.0)
    files.close()
    found = RunDir(tmp_path).read_flight_log()
    assert [type(each) for each in found] == [Begun, Progress, Resumed, Progress]
    assert 30.0 <= found[2].t <= found[3].t - 0.999
    assert found[3].t < 30.0 + 120.0


def test_a_file_at_its_limit_is_continued_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("midflight.coordinator.flight_log.MOST_WRITTEN", 300)
    folder = RunDir(tmp_path)
    files = log_files(folder.flight_log)
    log = open_log(folder.flight_log, files, SPEC, 0.0)
    for second in range(40):
        log.heard(beat(second + 1), float(second))
    files.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) <= 2 and max(sizes) < 600
    assert folder.read_flight_log()[-1] == Progress(39.0, 40, 0)


def test_what_members_say_of_their_training_is_in_the_record_and_in_the_status() -> None:
    async def check() -> None:
        lines: list[str] = []
        async with served() as coordinator:
            coordinator.shell.log = FlightLog(lines.append, 0.0)
            wire = await coordinator.member("m0")
            pause = Pause(0.01, 0.02, 0.03, 0.04, 0.05, 0.06)
            wire.send(say.MemberPaused(2, 7, planned=False, pause=pause))
            wire.send(say.MemberLogged(7, 0, {"loss": 0.5}))
            await coordinator.until(lambda: len(lines) == 2)
            paused, logged = parse(lines)
            assert isinstance(paused, Paused) and isinstance(logged, Logged)
            assert (paused.member, paused.pause, logged.values) == ("m0", pause, {"loss": 0.5})
            client = await coordinator.dial("client")
            client.send(say.StatusRequested())
            assert (await next_of(client, say.Status)).logged == {"loss": 0.5}

    asyncio.run(check())
