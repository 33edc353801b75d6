"""The failures of a node's workers, and the summary that torchrun's users know.

What a worker wrote into its error file (`@record` does that) comes first; without one a signal is
named, and for the rest the page that says how to get a traceback. The first failure is the root
cause. The layout is that of torchrun's ChildFailedError.
"""

import contextlib
import json
import signal
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from midflight import atomic_file
from midflight.agent.members import Ended

NOT_AVAILABLE = "<N/A>"
HOW_TO_GET_A_TRACEBACK = (
    "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
)
NAME = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
WIDEST = 60
LARGEST_ERROR_FILE = 4 << 20


@dataclass(frozen=True)
class Failure:
    rank: int
    local_rank: int
    pid: int
    code: int
    at: int  # wall clock, whole seconds
    message: str
    error_file: Path | None = None

    @property
    def signal_name(self) -> str:
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.code).name if self.code < 0 else NOT_AVAILABLE
        return NOT_AVAILABLE


def failure_of(ended: Ended, error_file: Path) -> Failure:
    environment = ended.order.environment
    told = _read(error_file)
    at, message = told or (int(time.time()), "")
    failure = Failure(
        rank=int(environment.get("RANK", 0)),
        local_rank=ended.order.slot,
        pid=ended.pid,
        code=ended.code,
        at=at,
        message=message,
        error_file=error_file if told else None,
    )
    return failure if message else _explained(failure)


def _explained(failure: Failure) -> Failure:
    text = HOW_TO_GET_A_TRACEBACK
    if failure.code < 0:
        text = f"Signal {-failure.code} ({failure.signal_name}) received by PID {failure.pid}"
    return Failure(**{**failure.__dict__, "message": text})


def _read(path: Path) -> tuple[int, str] | None:
    """When and what, from an error file; None if there is none that can be read."""
    data = _load(path)
    if data is None:
        return None
    message = data.get("message")
    if isinstance(message, dict):
        extra = message.get("extraInfo") or {}
        text = extra.get("py_callstack") or message.get("message") or NOT_AVAILABLE
        return _moment(extra.get("timestamp")), str(text)
    return _moment(data.get("timestamp")), str(message or "")


def _load(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > LARGEST_ERROR_FILE:
            return None
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _moment(text: object) -> int:
    try:
        return int(str(text))
    except ValueError:
        return int(time.time())


def line_of(failure: Failure, binary: str) -> str:
    return (
        f"failed (exitcode: {failure.code}) local_rank: {failure.local_rank} "
        f"(pid: {failure.pid}) of binary: {binary}"
    )


def first_of(failures: list[Failure]) -> Failure:
    return min(failures, key=lambda failure: failure.at)


def summary(title: str, failures: list[Failure], host: str) -> str:
    """All failures as one block, the root cause last, as torchrun prints it."""
    root = first_of(failures)
    shown = {id(f): _block(number, f, host) for number, f in enumerate(failures)}
    others = [shown[id(f)] for f in failures if f is not root]
    lines = "\n".join((f"{title} FAILED", *shown.values())).split("\n")
    width = min(WIDEST, max(map(len, lines)))
    border, section = "=" * width, "-" * width
    return "\n".join(
        (
            f"{NAME}: ",
            border,
            f"{title} FAILED",
            section,
            "Failures:",
            *(others or ["  <NO_OTHER_FAILURES>"]),
            section,
            "Root Cause (first observed failure):",
            shown[id(root)],
            border,
        )
    )


def _block(number: int, failure: Failure, host: str) -> str:
    name = failure.signal_name
    marked = f" ({name})" if name != NOT_AVAILABLE else ""
    message = failure.message.replace("\n", "\n  ")
    return "\n".join(
        (
            f"[{number}]:",
            f"  time      : {datetime.fromtimestamp(failure.at).isoformat(sep='_')}",
            f"  host      : {host}",
            f"  rank      : {failure.rank} (local_rank: {failure.local_rank})",
            f"  exitcode  : {failure.code} (pid: {failure.pid}) {marked}",
            f"  error_file: {failure.error_file or NOT_AVAILABLE}",
            f"  traceback : {message}",
        )
    )


def pass_on(failure: Failure, target: str) -> None:
    """Copy the root cause into the error file that this process was given itself."""
    data = _load(failure.error_file) if failure.error_file else None
    if data is None:
        return
    if isinstance(data.get("message"), dict):
        data["message"]["errorCode"] = failure.code
    with contextlib.suppress(OSError):
        atomic_file.write(Path(target), json.dumps(data).encode(), 0o644, durable=False)
