"""Where a line ends, whatever pieces the bytes come in."""

from hypothesis import given
from hypothesis import strategies as st

from midflight.agent.output import LineSplitter


def split(*pieces: bytes, longest: int = 64 << 10) -> list[str]:
    splitter = LineSplitter(longest)
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.flush()


def test_line_feeds_end_lines_and_empty_lines_count() -> None:
    assert split(b"one\n\ntwo\n") == ["one", "", "two"]


def test_a_partial_line_waits_for_its_end() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == ["one"]
    assert splitter.feed(b"o\n") == ["two"]
    assert splitter.flush() == []


def test_the_last_line_needs_no_end() -> None:
    assert split(b"one\ntwo") == ["one", "two"]


def test_windows_line_ends_are_one_end() -> None:
    assert split(b"one\r\n\r\ntwo\r\n") == ["one", "", "two"]


def test_a_windows_line_end_may_come_in_two_pieces() -> None:
    assert split(b"one\r", b"\ntwo\r\n\r", b"\nthree") == ["one", "two", "", "three"]


def test_each_state_of_a_progress_bar_is_a_line() -> None:
    assert split(b"\r 10%", b"\r 20%\r", b" 30%\n") == [" 10%", " 20%", " 30%"]


def test_undecodable_bytes_are_replaced() -> None:
    assert split(b"caf\xc3\xa9 \xff\n") == ["café �"]


def test_a_character_may_come_in_two_pieces() -> None:
    assert split(b"caf\xc3", b"\xa9\n") == ["café"]


def test_an_endless_line_is_cut_between_characters() -> None:
    assert split("aé".encode() * 4 + b"\n", longest=5) == ["aéa", "éaé", "aé"]
    splitter = LineSplitter(longest=4)
    assert splitter.feed(b"abcdefghij") == ["abcd", "efgh"]
    assert splitter.flush() == ["ij"]


@given(st.lists(st.sampled_from([b"a", b"b c", b"\r", b"\n", b"\r\n", "é".encode(), b""])))
def test_how_the_bytes_are_cut_up_does_not_matter(pieces: list[bytes]) -> None:
    assert split(*pieces) == split(b"".join(pieces))
