"""One line on stderr about what takes longer than a second, on a terminal only.

The line is drawn again in place and wiped out at the end, so that nothing of it stays.
"""

import os
import sys
import threading
import time

from midflight import durations

PATIENCE = 1.0  # seconds before anything is drawn
_TICK = 0.25
_MARKS = "|/-\\"
_WIPE = "\r\x1b[K"


class Progress:
    """`with Progress("waiting for demo") as progress: ... progress.text = "starting"`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        began = time.monotonic()
        turn = 0
        drawn = False
        while not self._over.wait(_TICK if turn else PATIENCE):
            elapsed = durations.shown(time.monotonic() - began)
            line = f"{_MARKS[turn % len(_MARKS)]} {self.text} ({elapsed})"
            sys.stderr.write(f"{_WIPE}{fitting(line)}")
            sys.stderr.flush()
            drawn = True
            turn += 1
        if drawn:
            sys.stderr.write(_WIPE)
            sys.stderr.flush()


def fitting(line: str) -> str:
    """What does not fit into one row could not be wiped out."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns  # 0: nobody knows
    return line if len(line) < columns or not columns else f"{line[: max(0, columns - 4)]}..."
