"""Reading logs: all, the end, since a moment, merged, and as they grow."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from midflight.backends.local import log_file
from midflight.backends.local.interface import LogQuery
from midflight.backends.local.keeper import Log, Stream
from midflight.backends.local.logs import read
from midflight.errors import NotFound
from tests.backends.instances import PATIENCE, scenario

EVERYTHING = LogQuery()


class Writer:
    """Writes as a keeper does, but at times that the test chooses."""

    def __init__(self, folder: Path, most: int = 10 << 20, files: int = 5) -> None:
        folder.mkdir(exist_ok=True)
        self.log = Log(str(folder / "log"), most, files)

    def at(self, second: int, text: str, flag: str = "F", stream: str = "stdout") -> None:
        when = f"2026-01-01T00:00:{second:02}.000000Z"
        self.log.add([f"{when} {stream} {flag} {text}\n".encode()])

    def lines(self, first: int, last: int) -> None:
        self.log.add(Stream(b"stdout").feed(b"".join(b"line %d\n" % n for n in range(first, last))))


async def text(folders: Mapping[str, Path], query: LogQuery = EVERYTHING) -> list[str]:
    data = b"".join([chunk async for chunk in read(folders, query, lambda: True)])
    return data.decode().splitlines()


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last)]


@scenario
async def test_a_log_is_read_as_it_was_printed(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.at(1, "one")
    writer.at(2, "")
    writer.at(3, "two  words\r50%\r100%")
    chunks = [chunk async for chunk in read({"w": tmp_path}, LogQuery(), lambda: True)]
    assert b"".join(chunks) == b"one\n\ntwo  words\r50%\r100%\n"


@scenario
async def test_times_and_names_are_put_before_the_lines(tmp_path: Path) -> None:
    Writer(tmp_path).at(1, "one")
    query = LogQuery(timestamps=True)
    assert await text({"w": tmp_path}, query) == ["2026-01-01T00:00:01.000000Z one"]
    query = LogQuery(timestamps=True, all=True)
    assert await text({"w": tmp_path}, query) == ["[w] 2026-01-01T00:00:01.000000Z one"]


@scenario
async def test_all_instances_are_merged_by_time(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("a", "b")}
    a, b = (Writer(folder) for folder in folders.values())
    a.at(1, "one")
    b.at(2, "two")
    a.at(3, "three")
    b.at(4, "four")
    merged = ["[a] one", "[b] two", "[a] three", "[b] four"]
    assert await text(folders, LogQuery(all=True)) == merged
    assert await text(folders, LogQuery(all=True, tail=3)) == merged[1:]
    assert await text(folders, LogQuery(instance="b")) == ["two", "four"]
    assert await text(folders) == ["one", "three"]


@scenario
async def test_an_instance_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'c'; instances of this job: a, b"):
        await text({"a": tmp_path, "b": tmp_path}, LogQuery(instance="c"))


@scenario
async def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert await text({"w": tmp_path / "nowhere"}) == []
    assert await text({"w": tmp_path}, LogQuery(tail=5, follow=True)) == []


@scenario
async def test_parts_of_a_line_are_put_together_again_by_stream(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.at(1, "aa", "P")
    writer.at(2, "error", stream="stderr")
    writer.at(3, "bb", "P")
    writer.at(4, "cc")
    writer.at(5, "no end", "P")
    lines = ["error", "aabbcc", "no end"]
    assert await text({"w": tmp_path}) == lines
    assert await text({"w": tmp_path}, LogQuery(tail=1)) == lines[-1:]
    assert await text({"w": tmp_path}, LogQuery(tail=0)) == []


@scenario
async def test_what_is_no_entry_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"2026-01-01T00:0\n\n\xff\xfe torn\n")
    Writer(tmp_path).at(1, "one")
    assert await text({"w": tmp_path}) == ["one"]
    assert await text({"w": tmp_path}, LogQuery(tail=9)) == ["one"]


@scenario
async def test_since_leaves_out_what_is_older(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for second in range(1, 6):
        writer.at(second, f"at {second}")
    since = 1767225600 + 3.5  # 2026-01-01 and a little
    assert await text({"w": tmp_path}, LogQuery(since=since)) == ["at 4", "at 5"]
    assert await text({"w": tmp_path}, LogQuery(since=since, tail=1)) == ["at 5"]
    assert await text({"w": tmp_path}, LogQuery(since=time.time() + 100)) == []


@pytest.mark.parametrize("count", [0, 1, 7, 100, 2000])
@scenario
async def test_the_end_of_a_log_is_found_over_its_rotated_files(tmp_path: Path, count: int) -> None:
    Writer(tmp_path, most=1000, files=100).lines(0, 1000)
    assert len(os.listdir(tmp_path)) > 30
    assert await text({"w": tmp_path}) == numbered(0, 1000)
    assert await text({"w": tmp_path}, LogQuery(tail=count)) == numbered(max(0, 1000 - count), 1000)


@scenario
async def test_the_end_of_a_big_log_is_read_without_the_rest(tmp_path: Path) -> None:
    entry = b"2026-01-01T00:00:01.000000Z stdout F " + b"x" * 900 + b"\n"
    (tmp_path / "log").write_bytes(entry * 50_000)
    Writer(tmp_path, most=1 << 30).lines(0, 10)
    reader = log_file.LogReader(tmp_path / "log")
    reader.begin(10, 0.0)
    assert reader._file is not None
    size = (tmp_path / "log").stat().st_size
    assert size - reader._file.tell() < 1000
    reader.close()
    assert await text({"w": tmp_path}, LogQuery(tail=10)) == numbered(0, 10)


class Follower:
    def __init__(self, folders: Mapping[str, Path], query: LogQuery) -> None:
        self.over = False
        self._stream: AsyncIterator[bytes] = read(folders, query, lambda: self.over)
        self._seen = ""

    async def until(self, word: str) -> list[str]:
        """Everything that came since the start, as soon as this word is in it."""
        async with asyncio.timeout(PATIENCE):
            while word not in self._seen:
                self._seen += (await anext(self._stream)).decode()
        return self._seen.splitlines()

    async def rest(self) -> list[str]:
        self.over = True
        async with asyncio.timeout(PATIENCE):
            self._seen += b"".join([chunk async for chunk in self._stream]).decode()
        return self._seen.splitlines()


@scenario
async def test_following_goes_on_until_the_job_is_over_and_everything_is_read(
    tmp_path: Path,
) -> None:
    follower = Follower({"w": tmp_path}, LogQuery(follow=True))
    writer = Writer(tmp_path)
    writer.lines(0, 3)
    await follower.until("line 2")
    writer.lines(3, 5)
    await follower.until("line 4")
    writer.lines(5, 8)
    writer.at(9, "no end", "P")
    assert await follower.rest() == [*numbered(0, 8), "no end"]


@scenario
async def test_following_loses_nothing_over_rotations_and_new_attempts(tmp_path: Path) -> None:
    follower = Follower({"w": tmp_path}, LogQuery(follow=True, tail=2))
    writer = Writer(tmp_path, most=1500, files=50)
    writer.lines(0, 100)
    await follower.until("line 99")
    writer.lines(100, 400)  # several rotations
    await follower.until("line 399")
    writer = Writer(tmp_path, most=1500, files=50)  # of the next attempt
    writer.lines(400, 500)
    assert await follower.rest() == numbered(98, 500)


@scenario
async def test_a_slow_reader_goes_on_with_the_oldest_file_that_is_left(tmp_path: Path) -> None:
    follower = Follower({"w": tmp_path}, LogQuery(follow=True))
    writer = Writer(tmp_path, most=1500, files=3)
    writer.lines(0, 5)
    await follower.until("line 4")
    writer.lines(5, 1000)
    lines = await follower.rest()
    assert lines[:5] == numbered(0, 5)
    assert lines[-1] == "line 999"
    own = [int(line.split()[1]) for line in lines]
    assert own == sorted(set(own))
    assert len(own) < 200


@scenario
async def test_instances_that_come_later_are_followed_too(tmp_path: Path) -> None:
    folders = {"a": tmp_path / "a"}
    follower = Follower(folders, LogQuery(follow=True, all=True, tail=1))
    Writer(folders["a"]).lines(0, 2)
    assert await follower.until("line 1") == ["[a] line 1"]
    folders["b"] = tmp_path / "b"
    Writer(folders["b"]).lines(0, 2)
    assert await follower.rest() == ["[a] line 1", "[b] line 0", "[b] line 1"]


def test_a_disk_that_takes_nothing_and_cannot_be_mended_does_not_end_the_keeper(
    tmp_path: Path,
) -> None:
    (tmp_path / "log").symlink_to("/dev/full")  # where truncating fails, too
    writer = Writer(tmp_path)
    writer.at(1, "a")
    writer.at(2, "b")
    assert writer.log.lost == 2
