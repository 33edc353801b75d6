"""A launcher inside a job's instance: the workers' agents are started by whoever runs the job."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from midflight.rundir import RunDir
from tests.e2e.runs import Run, check_complete, coordinator_of

pytestmark = pytest.mark.slow


class HostedRun(Run):
    """Stands in for the server: writes the hostfile, and starts the workers' agents."""

    def __init__(self, home: Path, *flags: str, np: int) -> None:
        super().__init__(home, *flags, np=np, warm=0)
        self.job = home / "jobs" / "default" / "job"
        (self.job / "edl").mkdir(parents=True)
        (self.job / "run").mkdir(mode=0o700)
        self.folder = RunDir(self.job / "run")
        self.env |= {"MIDFLIGHT_JOB_DIR": str(self.job), "MIDFLIGHT_JOB": "job"}

    def list_hosts(self, *names: str) -> None:
        temporary = self.job / "edl" / ".hostfile"
        temporary.write_text("".join(f"{name}:1\n" for name in names))
        temporary.replace(self.job / "edl" / "hostfile")

    @contextmanager
    def worker(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        words = [sys.executable, "-m", "midflight.agent", "--run-dir", str(self.job / "run")]
        agent = subprocess.Popen(
            [*words, "--name", name, "--address", "127.0.0.1"],
            env=self.env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield agent
        finally:
            agent.kill()
            agent.wait(30)


def test_workers_that_were_there_first_are_joined_and_later_ones_make_the_job_grow(
    tmp_path: Path,
) -> None:
    run = HostedRun(tmp_path, "--min-np", "1", "--max-np", "9", "--start-timeout", "600", np=3)
    run.list_hosts("job-worker-0", "job-worker-1")
    with run.worker("job-worker-0"), run.worker("job-worker-1"), run:
        run.await_stable(2, beyond=3)  # long before the start timeout: everyone listed is there
        run.list_hosts("job-worker-0", "job-worker-1", "job-worker-2")
        with run.worker("job-worker-2") as third:
            run.await_stable(3)
            run.list_hosts("job-worker-0", "job-worker-1")
            run.await_status(lambda s: {m["host"][-1] for m in s["members"]} == {"0", "1"})
            assert third.poll() is None  # its end is for whoever started it
            assert run.finish() == 0
            assert third.wait(30) == 0  # the job is over for everybody
    check_complete(run)


def test_a_launcher_that_was_killed_takes_the_run_up_while_its_workers_train_on(
    tmp_path: Path,
) -> None:
    run = HostedRun(tmp_path, "--min-np", "1", "--max-np", "9", np=2)
    run.list_hosts("job-worker-0", "job-worker-1")
    with run.worker("job-worker-0"), run.worker("job-worker-1"), run:
        before = run.await_stable(2, beyond=3)
        os.kill(run.launcher.pid, signal.SIGKILL)
        os.kill(coordinator_of(run), signal.SIGKILL)
        run.launcher.wait(30)
        run.__enter__()
        after = run.await_status(lambda s: s["step"] > before["step"] + 5)
        assert {m["pid"] for m in before["members"]} == {m["pid"] for m in after["members"]}
        assert run.finish() == 0
    check_complete(run)
