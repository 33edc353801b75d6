"""Following the record of a run: every line is read, and none of them twice."""

import asyncio
from pathlib import Path

import pytest

from midflight.flight.records import Begun, Lost, Progress, Record, as_line
from midflight.flight.totals import Totals
from midflight.server import training_logs
from midflight.server.training_logs import Follower, TrainingLogs
from midflight.sink import older

BEGUN = Begun(0.0, "mine", 1e9, 2, 1, 4)


def lost(t: float) -> Lost:
    return Lost(t, "m1", "h1", "its process is gone")


def write(path: Path, *records: Record) -> None:
    with path.open("a") as file:
        file.writelines(f"{as_line(record)}\n" for record in records)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flight.jsonl"


def losses(follower: Follower) -> int | None:
    follower.look()
    return None if follower.totals is None else follower.totals.losses


def test_only_what_is_new_is_read(path: Path) -> None:
    follower = Follower(path)
    write(path, BEGUN, lost(1.0))
    assert follower.look() == path.stat().st_size
    assert follower.look() == 0
    before = path.stat().st_size
    write(path, lost(2.0))
    assert follower.look() == path.stat().st_size - before
    assert follower.totals == Totals(losses=2)


def test_a_run_without_a_record_has_no_totals(path: Path) -> None:
    assert losses(Follower(path)) is None
    path.write_text("")
    assert losses(Follower(path)) is None


def test_a_line_that_is_being_written_counts_once_it_is_whole(path: Path) -> None:
    follower, line = Follower(path), as_line(lost(1.0))
    write(path, BEGUN)
    with path.open("a") as file:
        file.write(line[:20])
        file.flush()
        assert losses(follower) == 0
        file.write(line[20:] + "\n")
    assert losses(follower) == 1


def test_a_file_that_reached_its_limit_is_read_to_its_end_and_not_again(path: Path) -> None:
    follower = Follower(path)
    write(path, BEGUN, lost(1.0))
    assert losses(follower) == 1
    write(path, lost(2.0))
    path.rename(older(path))
    write(path, lost(3.0))
    assert losses(follower) == 3
    assert losses(follower) == 3
    older(path).unlink()
    path.rename(older(path))
    write(path, lost(4.0))
    assert losses(follower) == 4


def test_whoever_follows_later_reads_both_files(path: Path) -> None:
    write(older(path), BEGUN, lost(1.0))
    write(path, lost(2.0))
    assert losses(Follower(path)) == 2


def test_a_run_that_begins_anew_is_counted_from_nothing(path: Path) -> None:
    follower = Follower(path)
    write(path, BEGUN, lost(1.0), lost(2.0))
    assert losses(follower) == 2
    path.unlink()
    write(path, Begun(0.0, "mine", 2e9, 2, 1, 4), lost(1.0))
    assert losses(follower) == 1, "although the file may have the number of the one before"


def test_a_record_has_no_totals_until_it_is_read_to_its_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old losses would look like new ones."""
    write(path, BEGUN, *(lost(float(t)) for t in range(10)))
    monkeypatch.setattr(training_logs, "MOST_OF_ONE", 400)
    follower = Follower(path)
    seen = [losses(follower) for _ in range(10)]
    assert set(seen) == {None, 10}
    assert seen == sorted(seen, key=lambda each: each or 0)


def test_a_line_that_is_no_record_and_longer_than_all_that_is_read_is_passed_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, BEGUN)
    path.write_text(path.read_text() + "x" * 1000 + "\n")
    write(path, lost(1.0))
    monkeypatch.setattr(training_logs, "MOST_OF_ONE", 300)
    follower = Follower(path)
    assert [losses(follower) for _ in range(10)][-1] == 1


def test_many_records_are_read_over_several_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_logs, "MOST_OF_ALL", 100)
    paths = {f"job-{n}": tmp_path / f"{n}.jsonl" for n in range(5)}
    for path in paths.values():
        write(path, BEGUN, Progress(1.0, 7, 0))

    async def look() -> list[int]:
        logs = TrainingLogs()
        return [len(await logs.totals(paths)) for _ in range(5)]

    counts = asyncio.run(look())
    assert counts[0] < counts[-1] == 5
    assert counts == sorted(counts)


def test_those_who_ask_at_the_same_time_get_the_same_answer(path: Path) -> None:
    write(path, BEGUN, lost(1.0))

    async def ask() -> list[dict[str, Totals]]:
        logs = TrainingLogs()
        return await asyncio.gather(*(logs.totals({"a": path}) for _ in range(3)))

    first, *others = asyncio.run(ask())
    assert first == {"a": Totals(losses=1)}
    assert all(other is first for other in others)
