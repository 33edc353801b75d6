"""Scripts of every kind that a run must carry: each in scripts/, each a few lines long."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import midflight as mf
from tests.e2e.runs import (
    COUNTING,
    PATIENCE,
    Run,
    by_rank,
    check_complete,
    coordinator_of,
    kill,
    ranked,
)
from tests.packages import Missing
from tests.store.etcd_binary import find_etcd
from tests.store.etcd_process import Etcd

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).with_name("scripts")
FLAGS = ("--min-np", "1", "--max-np", "3", "--cooldown", "60", "60")
EPOCHS = 15  # of scripts/counter.py


def script(name: str, home: Path) -> list[str]:
    return ["python", str(SCRIPTS / name), str(home / "out")]


def run_plainly(tmp_path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    out = tmp_path / "out"
    out.mkdir()
    (out / "hurry").touch()
    env = {k: v for k, v in os.environ.items() if not k.startswith("MIDFLIGHT_")}
    return subprocess.run(
        [sys.executable, *words],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


# --- alone ----------------------------------------------------------------------------------


def test_plain_python_is_a_world_of_one(tmp_path: Path) -> None:
    done = run_plainly(tmp_path, str(COUNTING), "--out", str(tmp_path / "out"), "--epochs", "2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    result = (tmp_path / "out" / "m0.json").read_text()
    assert '"rank": 0, "size": 1, "step": 200, "least": 2, "most": 2' in result


@pytest.mark.parametrize(
    "name", ["hand_written.py", "own_ddp.py", "own_epochs.py", "micro_batches.py"]
)
def test_every_style_works_alone(tmp_path: Path, name: str) -> None:
    done = run_plainly(tmp_path, str(SCRIPTS / name), str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (0, "")
    assert '"least": 15, "most": 15' in (tmp_path / "out" / "m0.json").read_text()


# --- together -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["hand_written.py", "own_loader.py", "own_ddp.py", "own_epochs.py", "micro_batches.py"],
)
def test_every_style_survives_a_resize_and_a_death(tmp_path: Path, name: str) -> None:
    with Run(tmp_path, *FLAGS, script=script(name, tmp_path), np=2) as run:
        run.await_stable(2, beyond=3)
        answer = run.resize("--to", "3")
        assert answer.returncode == 0, answer.stderr
        grown = run.progress()
        assert (len(ranked(grown)), grown["resets"]) == (3, 0)
        kill(by_rank(grown, 0))
        run.await_status(lambda s: s["resets"] == 1 and s["phase"] == "stable")
        run.progress()
        assert run.finish() == 0
        check_complete(run, EPOCHS)


def test_deaths_in_the_midst_of_a_scripts_own_backward_passes_change_no_weight(
    tmp_path: Path,
) -> None:
    deaths = {"m1": 10, "m2": 20, "m3": 30}
    words = [*script("own_backward.py", tmp_path), *(f"{m}:{step}" for m, step in deaths.items())]
    flags = ("--min-np", "1", "--max-np", "4", "--cooldown", "60", "60")
    with Run(tmp_path, *flags, script=words, np=4) as run:
        run.await_status(lambda s: s["resets"] == len(deaths) and s["phase"] == "stable")
        assert len(ranked(run.progress())) == 1
        assert run.finish() == 0
        check_complete(run, EPOCHS)


def test_everything_that_a_newcomer_lacks_reaches_it(tmp_path: Path) -> None:
    with Run(tmp_path, *FLAGS, script=script("full_state.py", tmp_path), np=2) as run:
        before = run.await_stable(2, beyond=20)
        assert run.resize("--to", "3").returncode == 0
        assert run.resize("--remove-member", by_rank(before, 0)["name"]).returncode == 0
        run.progress()
        assert run.finish() == 0
        assert "and was replaced" not in run.output  # nor did verify_every find anything
        results = run.results()
    assert len(results) == 2
    first, second = results
    assert first == second
    assert first["step"] == first["batches"] == 600
    assert first["lr"] < 0.02 and first["scale"] > 4.0


def test_a_checkpoint_is_for_the_day_when_everybody_dies(tmp_path: Path) -> None:
    """In the middle of whatever they are doing; twice, and each time the job is of another size."""
    begun = []
    for size in (2, 3, 1):
        with Run(tmp_path, *FLAGS, script=script("checkpoints.py", tmp_path), np=size) as run:
            line = run.await_line(rf"begins at step \d+ as one of {size}")
            begun.append(int(line.split()[-5]))
            if size > 1:
                await_checkpoint(run, begun[-1] + 10)
                kill(*ranked(run.status()))
                assert run.wait() == 1
                assert "no remaining member holds the training state" in run.output
                continue
            assert run.finish() == 0
            check_complete(run, EPOCHS)
            audit = run.command("audit", "job")
    assert begun[0] == 0 and begun[1] >= 10 and begun[2] >= begun[1] + 10, begun
    assert not any(step % 10 for step in begun)
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert "every sample was used exactly once" in audit.stdout
    assert audit.stdout.count(f"checkpoint of step {begun[2]}") == 1


def await_checkpoint(run: Run, step: int) -> None:
    """Training is past that step, and one of it or a later one is whole."""

    def is_there(status: dict[str, Any]) -> bool:
        kept = [int(path.stem.rpartition("-")[2]) for path in (run.out / "kept").glob("*.json")]
        return status["step"] > step and max(kept, default=0) >= step

    run.await_status(is_there)


# --- without Midflight ----------------------------------------------------------------------


def test_a_script_for_torchrun_is_restarted_at_each_change(tmp_path: Path) -> None:
    flags = ("--min-np", "1", "--max-np", "3", "--cooldown", "0", "0", "--start-timeout", "3")
    with Run(tmp_path, *flags, script=script("plain_ddp.py", tmp_path), np=2) as run:
        for rank in range(2):
            run.await_line(rf"^\[{rank}\]<stdout>:rank {rank} of 2 \({rank}/2\), restart 0")
        answer = run.resize("--to", "3")
        assert answer.returncode == 0, answer.stderr
        assert "restarting with 3 members" in answer.stdout
        for rank in range(3):
            run.await_line(rf"^\[{rank}\]<stdout>:rank {rank} of 3 \({rank}/3\), restart 0")
        kill(by_rank(run.status(), 1))
        for rank in range(3):
            run.await_line(rf"^\[{rank}\]<stdout>:rank {rank} of 3 \({rank}/3\), restart 1")
        assert run.finish() == 0
        last = {line.rpartition(" ")[2] for line in run.lines if "is done: " in line}
        assert len(last) == 1  # all of them, with the same weights
        assert run.left_over() == []


# --- what they print ------------------------------------------------------------------------


def test_lines_carry_the_rank_of_now_and_are_kept_where_asked(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    flags = (*FLAGS, "--timestamps", "--output-dir", str(kept))
    stamp = r"^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"
    with Run(tmp_path, *flags, script=script("talking.py", tmp_path), np=2) as run:
        run.await_line(stamp + r"\[0\]<stdout>:m0 is rank 0$")
        run.await_line(stamp + r"\[1\]<stderr>:m1 complains$")
        kill(by_rank(run.await_stable(2, beyond=3), 0))
        run.await_line(stamp + r"\[0\]<stdout>:m1 is rank 0$")
        assert run.finish() == 0
        check_complete(run, EPOCHS)
    wrong = [line for line in run.lines if re.search(r"\[1\]<stdout>:.* is rank 0", line)]
    assert len(wrong) <= 1  # printed before the change and read after it
    assert set((kept / "m0" / "stdout").read_text().splitlines()) == {"m0 is rank 0"}
    assert "m1 is rank 1\nm1 is rank 0\n" in (kept / "m1" / "stdout").read_text()
    assert set((kept / "m1" / "stderr").read_text().splitlines()) == {"m1 complains"}


# --- where the state is kept ----------------------------------------------------------------


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    try:
        server = Etcd(find_etcd(), tmp_path / "etcd")
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        server.start()
        yield server
    finally:
        server.stop()


def test_a_coordinator_takes_the_job_up_from_etcd(tmp_path: Path, etcd: Etcd) -> None:
    with Run(tmp_path, *FLAGS, "--store", etcd.url("runs"), np=2) as run:
        before = run.await_stable(2, beyond=3)
        first = coordinator_of(run)
        os.kill(first, signal.SIGKILL)
        after = run.await_status(
            lambda s: (
                s["phase"] == "stable"
                and s["step"] > before["step"] + 10
                and all(m["state"] == "active" for m in s["members"])
            )
        )
        assert (after["generation"], after["resets"]) == (before["generation"], 0)
        assert [m["pid"] for m in ranked(after)] == [m["pid"] for m in ranked(before)]
        etcd.kill()
        etcd.start()
        assert run.resize("--to", "3").returncode == 0
        assert run.finish() == 0
        check_complete(run)


# --- sys.exit inside the `with` block ---------------------------------------------------------


def test_members_that_all_exit_with_0_have_finished(tmp_path: Path) -> None:
    with Run(tmp_path, script=[*script("exits.py", tmp_path), "0", "5"], np=2) as run:
        assert run.wait() == 0
        assert "lost" not in run.output


def test_a_member_that_exits_with_0_alone_leaves_the_others_in_training(tmp_path: Path) -> None:
    words = [*script("exits.py", tmp_path), "0", "5", "m1"]
    with Run(tmp_path, "--min-np", "1", script=words, np=2) as run:
        assert run.wait() == 0
        assert "m1 finished before the others" in run.output
        assert "lost" not in run.output
    assert (tmp_path / "out" / "m0.txt").read_text() == "40"
    assert not (tmp_path / "out" / "m1.txt").exists()


# --- after training ---------------------------------------------------------------------------


@contextmanager
def pipe(path: Path) -> Iterator[int]:
    """A named pipe in which a script waits; it can be written to whether or not one does."""
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    handle = os.open(path, os.O_RDWR)
    try:
        yield handle
    finally:
        os.close(handle)


def test_a_script_may_run_on_after_training_for_longer_than_the_grace(tmp_path: Path) -> None:
    grace = 1.0
    with (
        pipe(tmp_path / "out" / "after-m1") as held,
        Run(
            tmp_path, "--grace", f"{grace:g}", script=script("afterwards.py", tmp_path), np=2
        ) as run,
    ):
        left = run.await_status(lambda s: [m["name"] for m in s["members"]] == ["m1"])
        assert left["phase"] == "ending"
        late = time.monotonic() + 3 * grace
        run.await_status(lambda s: time.monotonic() > late)
        os.write(held, b"!")
        assert run.wait() == 0
        assert run.left_over() == []
    assert (tmp_path / "out" / "m1.txt").read_text() == "40"


def test_a_script_that_runs_on_after_training_is_ended_by_ctrl_c(tmp_path: Path) -> None:
    words = script("afterwards.py", tmp_path)
    with pipe(tmp_path / "out" / "after-m0"), Run(tmp_path, script=words, np=1) as run:
        run.await_status(lambda s: s["phase"] == "ending")
        run.launcher.send_signal(signal.SIGINT)
        assert run.wait() == 130
        assert run.left_over() == []


def test_training_is_complete_when_the_last_checkpoint_is_written_whoever_does_it(
    tmp_path: Path,
) -> None:
    words = script("afterwards.py", tmp_path)
    with (
        pipe(tmp_path / "out" / "last-m0"),
        Run(tmp_path, "--min-np", "1", script=words, np=2) as run,
    ):
        waiting = run.await_status(
            lambda s: [m["state"] for m in s["members"]] == ["active", "finished"]
        )
        assert waiting["phase"] == "stable"
        kill(by_rank(waiting, 0))
        assert run.wait() == 0
    assert mf.load(tmp_path / "out" / "kept").step == 40
