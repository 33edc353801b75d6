"""The terminal of a command in a pod: its size, told again whenever it changes."""

import json
import os
import signal

import pytest

from midflight.kubernetes.api import exec_session


class Session:
    """Where frames go; while the second is on its way the terminal's size changes again."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def send_bytes(self, data: bytes) -> None:
        self.frames.append(data)
        if len(self.frames) == 2:
            signal.raise_signal(signal.SIGWINCH)


def test_a_change_of_size_while_one_is_being_told_is_told_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session()
    sizes = iter([(80, 24), (100, 40), (120, 50)])
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size(next(sizes)))
    with exec_session._resizing(session):  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGWINCH)
    told = [json.loads(frame[1:]) for frame in session.frames]
    assert [size["Width"] for size in told] == [80, 100, 120]
