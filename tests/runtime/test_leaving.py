"""A dismissed process ends early, but not before its own last words."""

import subprocess
import sys

DISMISSED = """
import atexit, logging, midflight
from midflight import leaving
atexit.register(print, "registered")
class Slow:
    def __del__(self):
        print("taken apart")
keep = Slow()
leaving.dismiss()
try:
    print("unflushed", end=" ")
    {end}
finally:
    print("finally")
"""


def run(end: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DISMISSED.format(end=end)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_was_registered_and_what_was_printed_is_not_lost() -> None:
    done = run("raise SystemExit(0)")
    assert (done.returncode, done.stdout) == (0, "unflushed finally\nregistered\n")


def test_a_script_that_fails_on_its_way_out_fails_as_usual() -> None:
    done = run("raise ValueError('no')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no\n")
    assert "taken apart" in done.stdout
