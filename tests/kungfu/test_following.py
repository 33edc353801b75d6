"""kungfu-run with real training processes: what the store says becomes true, nothing is lost."""

import os
import re
import signal
import sys

import pytest

from tests.kungfu import small_model
from tests.kungfu.commands import TRAINEE, Commands, cluster
from tests.run.site import Launched

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def check_last_lines(run: Launched, workers: int) -> None:
    """Every worker that stayed has come to what one process alone comes to."""
    last = [line.partition(">:")[2].split() for line in run.lines if ">:done" in line]
    assert len(last) == workers, run.lines
    assert {words[3] for words in last} == {small_model.after(int(last[0][1]))}


def test_whoever_writes_the_store_resizes_the_job_and_every_step_counts_once(
    commands: Commands,
) -> None:
    server, client = commands.config_server()
    stop = commands.folder / "stop"
    run = commands.start(
        *("kungfu-run", "-np", "2", "-w", "-config-server", client.url, "-name", "followed"),
        *("-logdir", "logs", sys.executable, str(TRAINEE), "--until", str(stop)),
    )
    run.says("at 0 rank=1 np=2", within=80)
    first = client.get()
    assert first is not None
    assert first.cluster == cluster("127.0.0.1:10000", "127.0.0.1:10001")

    client.put(cluster("127.0.0.1:10000", "127.0.0.2:10000", "127.0.0.2:10001"), first.etag)
    run.says("[1]<stdout>:left at", within=80)  # with the rank that it had
    run.says("rank=2 np=3", within=80)

    client.put(cluster("127.0.0.2:10000", "127.0.0.2:10001"))  # rank 0 leaves
    run.says("[0]<stdout>:left at", within=80)
    client.put(cluster("127.0.0.2:10001"))  # not the last one of its host leaves
    run.says("[0]<stdout>:left at", times=2, within=80)

    client.put(cluster("localhost:10000"))  # nobody stays
    run.says("<stdout>:left at", times=4, within=80)
    client.put(cluster("localhost:10000", "localhost:10001"))
    run.says("rank=1 np=2", times=4, within=80)
    victim = commands.status("followed")["members"][1]["pid"]
    os.kill(victim, signal.SIGKILL)
    run.says("went on with 1 member", within=60)
    client.stop()
    assert server.ends() == 0
    run.says("does not answer", within=60)  # and the last cluster holds
    stop.touch()
    assert run.ends(80) == 0, run.lines
    check_last_lines(run, 1)
    assert (commands.folder / "logs").is_dir()


def test_without_a_store_a_job_has_one_size_and_outlives_a_worker(commands: Commands) -> None:
    run = commands.start("kungfu-run", "-np", "2", sys.executable, str(TRAINEE), "--steps", "150")
    run.says("at 0 rank=1 np=2", within=80)
    victim = max(commands.processes(str(TRAINEE)))
    os.kill(victim, signal.SIGKILL)
    run.says("at ", times=3, within=60)
    assert run.ends(80) == 0, run.lines
    check_last_lines(run, 1)


DIES = "import os, time; time.sleep(1 + 0.5 * int(os.environ['RANK'])); raise ValueError('mine')"


def test_a_run_whose_workers_die_one_after_another_before_they_join_ends_with_the_first(
    commands: Commands,
) -> None:
    done = commands.finish("kungfu-run", "-np", "2", sys.executable, "-c", DIES)
    assert done.returncode == 1
    assert done.stderr.count("ValueError: mine") >= 1, "the traceback is shown"
    last = done.stderr.splitlines()[-1]
    assert "rank 0 on 127.0.0.1: exit code 1: ValueError: mine" in last


def test_the_manager_grows_and_shrinks_a_cluster_and_sees_that_training_goes_on(
    commands: Commands,
) -> None:
    done = commands.finish(
        *("kungfu-cluster-manager-example", "-ttl", "4s", "-period", "500ms", "-seed", "3"),
        *("-nodes", "2", "-slots", "1", "kungfu-fake-adaptive-trainer"),
    )
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert "training continued after each of" in last
    assert "with 1 to 2 workers" in last
    detached = [int(step) for step in re.findall(r"detached at step (\d+)", done.stdout)]
    assert detached, "an empty cluster detaches; nobody is killed"
    (steps,) = re.findall(r", for (\d+) steps ", last)
    assert int(steps) == max(detached)


def test_the_manager_says_when_training_ends_badly(commands: Commands) -> None:
    done = commands.finish("kungfu-cluster-manager-example", "-ttl", "5s", "false")
    assert done.returncode == 1
    assert "training ended with exit code" in done.stderr.splitlines()[-1]
