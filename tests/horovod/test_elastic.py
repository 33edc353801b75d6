"""Elastic Horovod scripts on real processes: resized, struck, and nothing lost."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.runs import by_rank, kill
from tests.horovod.conftest import Horovod

pytestmark = pytest.mark.slow
FLAGS = ("--min-np", "1", "--max-np", "4", "--warm", "1", "--cooldown", "1", "2")


def test_a_script_is_resized_in_place_and_loses_nothing(horovod: Horovod) -> None:
    """Also: collectives before the training function, process sets, several changes in a row."""
    with horovod.run("elastic.py", "400", "50", np=2, flags=FLAGS) as run:
        before = run.await_stable(2, beyond=20)
        first = {m["pid"] for m in before["members"] if m["rank"] is not None}
        grown = run.resize("--add", "1", "--wait")
        assert grown.returncode == 0, grown.stdout + grown.stderr
        run.await_line(r"batch \d+ size 3")
        again = run.resize("--add", "1", "--wait")
        assert again.returncode == 0, again.stdout + again.stderr
        shrunk = run.resize("--remove", "2", "--wait")
        assert shrunk.returncode == 0, shrunk.stdout + shrunk.stderr
        assert run.wait() == 0, run.output
        ended = {int(line.split("pid ")[1].split()[0]) for line in run.lines if "through" in line}
        assert ended == first  # nobody was started again
        assert all("sizes [2, 3, 4]" in line for line in run.lines if "through" in line)
        # A survivor's batch is never behind where it was: nothing was rolled back to a commit.
        resets = [int(b) for b in re.findall(r"reset pid \d+ batch (\d+)", run.output)]
        assert resets and all(batch == 0 or batch > 15 for batch in resets)
        assert run.left_over() == []


def test_ranks_of_an_encrypted_run_match_their_collectives_and_are_resized(
    horovod: Horovod,
) -> None:
    with horovod.run("elastic.py", "200", "50", np=2, flags=(*FLAGS, "--tls")) as run:
        run.await_stable(2, beyond=20)
        grown = run.resize("--add", "1", "--wait")
        assert grown.returncode == 0, grown.stdout + grown.stderr
        assert run.wait() == 0, run.output
        assert all("sizes [2, 3]" in line for line in run.lines if "through" in line)


def test_survivors_of_a_killed_rank_keep_what_came_after_the_last_commit(horovod: Horovod) -> None:
    with horovod.run("elastic.py", "300", "1000", np=3, flags=FLAGS) as run:
        status = run.await_stable(3, beyond=60)
        kill(by_rank(status, 0))  # the rank that everybody dials, and that states came from
        run.await_line(r"reset pid \d+ batch [1-9]")
        run.await_line(r"batch \d+ size 3")  # a newcomer has taken the place
        status = run.await_stable(3, beyond=120)
        kill(by_rank(status, 1), by_rank(status, 2))
        assert run.wait() == 0, run.output
        resets = [int(b) for b in re.findall(r"reset pid \d+ batch (\d+)", run.output)]
        assert all(batch == 0 or batch > 40 for batch in resets)
        assert run.left_over() == []


def test_a_sampler_gives_every_sample_once_though_members_come_and_go(
    horovod: Horovod, tmp_path: Path
) -> None:
    with horovod.run("sampling.py", str(tmp_path), np=3, flags=FLAGS) as run:
        run.await_line(r"epoch 0 left")
        assert run.resize("--remove", "1", "--wait").returncode == 0, run.output
        run.await_line(r"epoch 1 left")
        assert run.resize("--add", "1", "--wait").returncode == 0, run.output
        assert run.wait() == 0, run.output
    counts: Counter[tuple[int, int]] = Counter()
    for path in tmp_path.glob("samples.*"):
        counts.update(tuple(map(int, line.split())) for line in path.read_text().splitlines())  # type: ignore[misc]
    assert {sample for epoch, sample in counts if epoch == 0} == set(range(240))
    assert {sample for epoch, sample in counts if epoch == 1} == set(range(240))
    repeated = sum(counts.values()) - 2 * 240
    assert repeated <= 2 * 2 * 12  # no more than what fills the last batches up
