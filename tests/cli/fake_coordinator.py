"""A coordinator that says what a test wants, on a real socket, for a run folder of its own."""

import contextlib
import queue
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

from midflight.protocol.job import JobSpec
from midflight.protocol.wire import accept_blocking
from midflight.rundir import RunDir

GONE = object()  # an answer: nobody is there any more


class FakeCoordinator:
    """Lets clients in one after the other, writes down what they say and gives its answers."""

    def __init__(
        self, home: Path, run: str, answers: Sequence[object], job_in: str | None = None
    ) -> None:
        """`job_in`: it is the coordinator of a job in that namespace, instead of a run's."""
        self._heard: queue.Queue[object] = queue.Queue()
        self._answers = answers
        self._folder = RunDir.of(run, {"MIDFLIGHT_HOME": str(home)})
        if job_in is not None:
            self._folder = RunDir(home / "jobs" / job_in / run / "run")
        self._folder.create()
        self._folder.make_token()
        self._folder.write_spec(JobSpec(run, ("sh",), 1, 1, 1))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._folder.write_address(f"127.0.0.1:{self._listener.getsockname()[1]}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        secret = self._folder.read_token()
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # closed: the test is over
            with sock:
                wire, _ = accept_blocking(sock, secret)
                self._heard.put(wire.receive())
                for answer in self._answers:
                    if answer is GONE:
                        self._listener.close()
                        return
                    wire.send(answer)

    def hears(self) -> object:
        """What a client has said; waits for it."""
        return self._heard.get(timeout=5)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it may be closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
