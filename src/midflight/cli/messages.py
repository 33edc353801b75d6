"""What a verb says beside its result: lines with a level, on stderr.

On a terminal `INFO[0003] text`, with the seconds since the program began; elsewhere
`time="..." level=info msg="text"`, for programs that read it. MIDFLIGHT_LOG_FORMAT=text asks for
the first form everywhere. What was created is part of the result and goes to stdout. Hints speak of
the program by the name under which it was called: `midflight` or `arena`.
"""

import json
import os
import sys
import time
from pathlib import PurePath

from midflight.errors import UsageError
from midflight.printable import printable

PROGRAMS = ("midflight", "arena")
LEVELS = ("debug", "info", "warn", "error")
_SHORT = {"debug": "DEBU", "info": "INFO", "warn": "WARN", "error": "ERRO"}
_LONG = {"warn": "warning"}
_BEGAN = time.monotonic()
_least = "info"


def program() -> str:
    called = PurePath(sys.argv[0]).name if sys.argv else ""
    return called if called in PROGRAMS else PROGRAMS[0]


def set_level(level: str) -> None:
    """Say nothing that is less important than this."""
    global _least
    if level not in LEVELS:
        raise UsageError(f"Unknown level: {level}; wanted one of {', '.join(LEVELS)}")
    _least = level


def debug(text: str) -> None:
    _say("debug", text)


def info(text: str) -> None:
    _say("info", text)


def plain(text: str) -> None:
    """A line on stderr that has no level."""
    print(printable(text), file=sys.stderr, flush=True)


def created(name: str) -> None:
    """`name` is RESOURCE/NAME, as kubectl writes it."""
    print(f"{name} created", flush=True)


def _say(level: str, text: str) -> None:
    if LEVELS.index(level) < LEVELS.index(_least):
        return
    if sys.stderr.isatty() or os.environ.get("MIDFLIGHT_LOG_FORMAT") == "text":
        plain(f"{_SHORT[level]}[{int(time.monotonic() - _BEGAN):04d}] {text}")
    else:
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        moment = f"{now[:-2]}:{now[-2:]}"
        message = json.dumps(text, ensure_ascii=False)
        plain(f'time="{moment}" level={_LONG.get(level, level)} msg={message}')
