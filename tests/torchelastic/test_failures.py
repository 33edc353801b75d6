"""The failure summary: its layout, and what is made of error files of any kind."""

import json
from pathlib import Path

import pytest

from midflight.agent.members import Ended
from midflight.compat.torchelastic.failures import Failure, failure_of, first_of, summary
from midflight.protocol.messages import StartMember


def ended(code: int, rank: int = 3, slot: int = 1) -> Ended:
    order = StartMember("m0", slot, ("python",), "run", 1.0, 1.0, "", {"RANK": str(rank)})
    return Ended(order, 4242, code, stopped=False)


def test_the_first_failure_is_the_root_cause_and_stands_last() -> None:
    late = Failure(0, 0, 11, 1, 1_700_000_009, "late")
    early = Failure(1, 1, 12, -11, 1_700_000_001, "early\nsecond line")
    text = summary("train.py", [late, early], "node.example")
    assert first_of([late, early]) is early
    lines = text.splitlines()
    assert lines[0] == "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    assert lines[1] == lines[-1] and set(lines[1]) == {"="}
    assert lines[2] == "train.py FAILED"
    assert lines.index("Failures:") < lines.index("[0]:") < lines.index("[1]:")
    assert lines[lines.index("[1]:") - 1] == "Root Cause (first observed failure):"
    assert "  rank      : 1 (local_rank: 1)" in lines
    assert "  exitcode  : -11 (pid: 12)  (SIGSEGV)" in lines
    assert lines[lines.index("  traceback : early") + 1] == "  second line"


def test_the_border_is_as_wide_as_what_is_told_and_never_wider_than_60() -> None:
    short = summary("x", [Failure(0, 0, 1, 1, 1_700_000_000, "a")], "h")
    assert len(short.splitlines()[1]) == len("  time      : 2023-11-14_22:13:20")
    long = summary("x" * 99, [Failure(0, 0, 1, 1, 1_700_000_000, "a")], "h")
    assert len(long.splitlines()[1]) == 60


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"message": {"message": "m", "extraInfo": {"py_callstack": "stack"}}}, "stack"),
        ({"message": {"message": "m"}}, "m"),
        ({"message": {}}, "<N/A>"),
        ({"message": "plain", "timestamp": 1_700_000_000}, "plain"),
        ({"message": "plain", "timestamp": "never"}, "plain"),
    ],
)
def test_an_error_file_says_what_happened(tmp_path: Path, told: object, message: str) -> None:
    path = tmp_path / "error.json"
    path.write_text(json.dumps(told))
    failure = failure_of(ended(1), path)
    assert (failure.message, failure.error_file) == (message, path)
    assert (failure.rank, failure.local_rank, failure.pid) == (3, 1, 4242)


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '"x"'])
def test_without_one_that_can_be_read_the_page_that_helps_is_named(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "error.json"
    if text is not None:
        path.write_text(text)
    failure = failure_of(ended(1), path)
    assert failure.error_file is None and "elastic/errors.html" in failure.message
    assert failure_of(ended(-9), path).message == "Signal 9 (SIGKILL) received by PID 4242"
    assert "(<N/A>)" in failure_of(ended(-99), path).message
