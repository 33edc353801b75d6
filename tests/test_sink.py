"""Sinks: `put` never waits, order is kept, and what is dropped is counted."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midflight import sink
from midflight.sink import Bounds, Files, Sink, as_bytes, write_all


class Place:
    """Takes lines while it is open; can be told to fail."""

    def __init__(self, lines: int = 100, size: int = 10_000) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()  # somebody tries to write
        self.text = b""
        self.error: OSError | None = None
        self.reports: list[tuple[int, str]] = []
        self.sink: Sink[None] = Sink("place", self._write, self._report, Bounds(lines, size))

    def _write(self, target: None, data: bytes) -> None:
        self.reached.set()
        assert self.open.wait(10.0)
        if self.error is not None:
            raise self.error
        self.text += data

    def _report(self, count: int, error: str) -> None:
        self.reports.append((count, error))
        self.sink.put(None, b"(%d dropped)\n" % count, 1, urgent=True)

    def put(self, *lines: str) -> None:
        self.sink.put(None, as_bytes(lines), len(lines))

    @property
    def lines(self) -> list[str]:
        return self.text.decode().splitlines()


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.open.set()


def test_a_place_that_takes_lines_gets_all_of_them_in_order(place: Place) -> None:
    wanted = [f"line {number}" for number in range(90)]
    for line in wanted:
        place.put(line)
    assert place.sink.drain(5.0)
    assert place.lines == wanted and not place.reports


def close_with_one_in_hand(place: Place) -> None:
    place.open.clear()
    place.put("in hand")
    assert place.reached.wait(5.0)


def test_a_place_that_takes_nothing_loses_the_oldest_lines_and_tells_how_many(place: Place) -> None:
    close_with_one_in_hand(place)
    for number in range(130):
        place.put(f"line {number}")
    place.open.set()
    assert place.sink.drain(5.0)
    kept = [f"line {number}" for number in range(30, 130)]
    assert place.lines == ["in hand", "(30 dropped)", *kept]
    assert place.reports == [(30, "")]


def test_bytes_are_bounded_like_lines(place: Place) -> None:
    close_with_one_in_hand(place)
    for number in range(5):
        place.put(str(number) * 3999)
    place.open.set()
    assert place.sink.drain(5.0)
    assert [line[0] for line in place.lines] == ["i", "(", "3", "4"]


def test_a_batch_beyond_the_bound_is_written_if_it_is_alone(place: Place) -> None:
    place.put(*map(str, range(500)))
    assert place.sink.drain(5.0)
    assert len(place.lines) == 500


def test_draining_gives_a_stuck_place_up_and_reports_what_is_left(place: Place) -> None:
    close_with_one_in_hand(place)
    place.put("a", "b")
    assert not place.sink.drain(0.05)
    assert place.reports == [(3, "")]
    assert not place.sink.drain(60.0)  # it has been given up before, so nobody waits again


def test_draining_waits_as_long_as_lines_get_through() -> None:
    def write(target: None, data: bytes) -> None:
        time.sleep(0.02)  # a slow reader; all of it takes longer than the patience

    reports: list[int] = []
    sink: Sink[None] = Sink("slow", write, lambda n, _: reports.append(n), Bounds(100, 10_000, 10))
    sink.put(None, as_bytes(["123456789"] * 30), 30)
    assert sink.drain(0.3)
    assert not reports


def test_lines_that_cannot_be_written_are_counted_with_the_reason(place: Place) -> None:
    place.error = OSError(errno.ENOSPC, "No space left on device")
    place.put("a", "b")
    place.sink.drain(5.0)
    assert place.reports == [(2, "No space left on device")]


def test_reports_of_a_place_that_goes_on_failing_do_not_flood(place: Place) -> None:
    place.error = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(50):
        place.put("a")
    place.sink.drain(5.0)
    assert len(place.reports) <= 2  # at once, and at the end
    assert sum(count for count, _ in place.reports) >= 50


def test_files_are_made_continued_and_complete_when_closed(tmp_path: Path) -> None:
    for line in ("first", "second"):
        files = Files(lambda count, error: pytest.fail(error))
        files.put(tmp_path / "m1" / "stdout", [line])
        files.put(tmp_path / "m2" / "stderr", [line, "more"])
        files.close()
    assert (tmp_path / "m1" / "stdout").read_text() == "first\nsecond\n"
    assert (tmp_path / "m2" / "stderr").read_text() == "first\nmore\nsecond\nmore\n"


def test_a_file_that_has_grown_too_large_is_begun_anew_and_one_older_is_kept(
    tmp_path: Path,
) -> None:
    files = Files(lambda count, error: pytest.fail(error), limit=20)
    for number in range(9):
        files.put(tmp_path / "stdout", [f"line {number}"])
    files.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stdout.1"]
    assert (tmp_path / "stdout.1").read_text() == "line 6\nline 7\nline 8\n"


def test_more_files_than_may_be_open_are_all_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "MOST_OPEN", 2)
    files = Files(lambda count, error: pytest.fail(error))
    for line in ("first", "second"):
        for number in range(5):
            files.put(tmp_path / f"m{number}", [line])
    files.close()
    assert {path.read_text() for path in tmp_path.iterdir()} == {"first\nsecond\n"}


def test_files_that_cannot_be_made_are_reported(tmp_path: Path) -> None:
    (tmp_path / "m1").touch()
    reports: list[tuple[int, str]] = []
    files = Files(lambda count, error: reports.append((count, error)))
    files.put(tmp_path / "m1" / "stdout", ["line"])
    files.close()
    assert reports == [(1, "File exists")]


def test_a_pipe_that_somebody_made_non_blocking_is_waited_for() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    data = b"x" * 300_000
    writer = threading.Thread(target=write_all, args=(write, data))
    writer.start()
    got = b""
    while len(got) < len(data):
        got += os.read(read, 1 << 16)
    writer.join(5.0)
    os.close(read)
    os.close(write)
    assert got == data
