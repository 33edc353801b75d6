"""The record of a run: what it costs a member at each step, and the coordinator at each message.

The member's side is the real driver, between two changes. The coordinator's side is the real log on
a real file: a heartbeat that tells of a step, and what rank 0 passes to `job.log`.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.rows import Row
from midflight.coordinator.flight_log import log_files, open_log
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import Beat, MemberLogged
from midflight.protocol.world import ALONE

CALLS = 100_000


def run() -> list[Row]:
    """One repeat of everything."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flight.jsonl"
        files = log_files(path)
        log = open_log(path, files, JobSpec("bench", ("x",), 1, 1, 1), 0.0)
        hour = CALLS / 3600  # calls a second, if all were made in one hour
        said = MemberLogged(1, 0, {"loss": 0.5, "accuracy": 0.5})
        beat = _seconds(lambda n: log.heard(Beat(n, n, False, 0, n), n / hour))
        logged = _seconds(lambda n: log.logged(said, n / hour))
        files.close()
        size = path.stat().st_size / 1e6
    return [
        _row("a member's step", 1e6 * _seconds(_member()), "µs"),
        _row("a heartbeat at the coordinator", 1e6 * beat, "µs"),
        _row("a job.log at the coordinator", 1e6 * logged, "µs"),
        _row("the record of the first hour", size, "MB"),
    ]


def _member() -> Callable[[int], object]:
    from midflight.runtime.group.process_group import Group
    from midflight.runtime.membership.driver import Driver
    from midflight.runtime.membership.member import Membership
    from midflight.runtime.membership.standing import Standing

    trainer = Standing({})
    env = WorkerEnv("bench", "m0", "h0", 0, "127.0.0.1", "127.0.0.1:1", "", 600.0, 1.0, "")
    driver = Driver(trainer, Group(ALONE, "m0", "gloo"))
    driver.membership = Membership(env, b"", "gloo", trainer)
    return lambda _: driver.stepped()


def _seconds(call: Callable[[int], object]) -> float:
    """Of one call, in the mean."""
    began = time.perf_counter()
    for number in range(CALLS):
        call(number)
    return (time.perf_counter() - began) / CALLS


def _row(metric: str, value: float, unit: str) -> Row:
    return Row("midflight", "flight", 0, 0, metric, value, unit)
