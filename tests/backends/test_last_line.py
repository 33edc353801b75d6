"""Which line of a log tells of a bad end."""

from pathlib import Path

from midflight.backends.local.log_file import last_line

TIME = "2026-11-15T22:11:27.123456Z"


def written(folder: Path, *entries: str) -> Path:
    path = folder / "log"
    path.write_text("".join(f"{TIME} {entry}\n" for entry in entries))
    return path


def test_what_was_said_on_stderr_comes_first(tmp_path: Path) -> None:
    log = written(tmp_path, "stderr F Traceback", "stderr F ValueError: no", "stdout F done")
    assert last_line(log) == "ValueError: no"


def test_without_it_stdout_will_do_and_empty_lines_say_nothing(tmp_path: Path) -> None:
    log = written(tmp_path, "stdout F first", "stdout F second  ", "stdout F ", "stderr F  ")
    assert last_line(log) == "second"


def test_who_has_said_nothing_has_no_last_line(tmp_path: Path) -> None:
    assert last_line(written(tmp_path)) == ""
    assert last_line(tmp_path / "missing") == ""


def test_only_the_end_of_a_long_log_is_looked_at(tmp_path: Path) -> None:
    log = written(tmp_path, "stderr F long ago", *["stdout F " + "x" * 1000] * 50)
    assert last_line(log) == "x" * 300
