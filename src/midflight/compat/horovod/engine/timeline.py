"""A timeline of the collectives, as a trace that browsers show (chrome://tracing, Perfetto).

One row per tensor name: how long members waited for one another, then the collective itself. Rank 0
writes it, event by event, so that what there is can be read after a crash.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from midflight.compat.horovod.engine.requests import Request, Response


class Timeline:
    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._began = 0.0

    def start(self, path: str) -> None:
        if self._file is None:
            self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - open until stop()
            self._file.write("[\n")
            self._rows, self._began = {}, time.monotonic()

    def stop(self) -> None:
        with self._lock:
            file, self._file = self._file, None
        if file is not None:
            file.write('{"name": "end", "ph": "i", "ts": 0, "pid": 0, "s": "g"}\n]\n')
            file.close()

    def negotiating(self, request: Request) -> None:
        if self._file is not None:
            self._event(request.name, "B", f"NEGOTIATE_{request.kind.upper()}")

    @contextmanager
    def executing(self, response: Response) -> Iterator[None]:
        if self._file is None:
            yield
            return
        for name in response.names:
            self._event(name, "E", "")
            self._event(name, "B", response.kind.upper())
        try:
            yield
        finally:
            for name in response.names:
                self._event(name, "E", "")

    def _event(self, row: str, phase: str, name: str) -> None:
        with self._lock:
            if self._file is None:
                return
            if row not in self._rows:
                self._rows[row] = len(self._rows) + 1
                self._write({"name": "process_name", "ph": "M", "args": {"name": row}}, row)
            stamp = round((time.monotonic() - self._began) * 1e6)
            self._write({"ph": phase, "ts": stamp} | ({"name": name} if name else {}), row)
            self._file.flush()

    def _write(self, event: dict[str, object], row: str) -> None:
        assert self._file is not None
        self._file.write(json.dumps(event | {"pid": self._rows[row]}) + ",\n")
