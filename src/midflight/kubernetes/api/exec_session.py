"""A command in a pod, with this terminal: keys go there, what it prints comes here.

The bytes travel over a WebSocket in numbered channels, as Kubernetes defines them. On a terminal
the keys are not interpreted here, so Ctrl-C reaches the command there, and a change of the window's
size is told. The exit code is the command's own.
"""

import json
import os
import signal
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from midflight.errors import ConnectionLost, JobFailed, UsageError
from midflight.kubernetes.api import errors
from midflight.kubernetes.api.connection import Connection
from midflight.kubernetes.api.paths import path

if TYPE_CHECKING:
    import httpx2
    from httpx2.websockets import WebSocketSession

IN, OUT, ERR = range(3)  # our own
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)  # channels
CLOSE = 255  # with a channel: there is no more; v5 only
NEWEST = "v5.channel.k8s.io"
PROTOCOLS = [NEWEST, "v4.channel.k8s.io"]
SHELL = ("sh", "-c", "exec $(command -v bash || command -v sh)")
_sending = threading.Lock()
_BIGGEST = 16 << 20  # bytes of one message


def attach(
    connection: Connection, namespace: str, pod: str, container: str, command: Sequence[str]
) -> int:
    """Runs it with our own standard input and output; returns its exit code."""
    terminal = os.isatty(IN) and os.isatty(OUT)
    params = [("command", word) for word in command or SHELL]
    params += [("container", container), ("stdout", "true")]
    params += [("tty", "true")] if terminal else [("stderr", "true")]
    if given := terminal or _is_input(IN):
        params.append(("stdin", "true"))
    with _session(connection, path("Pod", namespace, pod, "exec"), params) as session:
        if terminal:
            with _raw(IN), _resizing(session):
                return _exchange(session, given)
        return _exchange(session, given)


def _is_input(fd: int) -> bool:
    """A pipe or a file; a terminal or nothing is not for a command without a terminal."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


@contextmanager
def _session(
    connection: Connection, where: str, params: Sequence[tuple[str, str]]
) -> Iterator["WebSocketSession"]:
    from httpx2.websockets import WebSocketUpgradeError

    # The reason for a refusal is gone with its connection, unless it is read at once.
    connection.http.event_hooks = {"response": [_read_refusal]}
    opening = connection.http.websocket(
        where,
        params=tuple(params),
        subprotocols=PROTOCOLS,
        max_message_size_bytes=_BIGGEST,
        keepalive_ping_timeout_seconds=None,
    )
    with ExitStack() as stack:
        try:
            with connection.translated():
                session = stack.enter_context(opening)
        except WebSocketUpgradeError as error:
            answer, what = error.response, "run a command there"
            raise errors.from_answer(
                answer.status_code, answer.content, what, connection.settings
            ) from None
        yield session


def _read_refusal(answer: "httpx2.Response") -> None:
    if answer.status_code >= 400:
        answer.read()


def _exchange(session: "WebSocketSession", given: bool) -> int:
    from httpx2.websockets import HTTPXWSException

    if given:
        threading.Thread(target=_send_input, args=(session,), daemon=True).start()
    outputs = {STDOUT: OUT, STDERR: ERR}
    while True:
        try:
            message = session.receive_bytes()
        except HTTPXWSException:
            raise ConnectionLost("the connection to the pod broke; is it still there?") from None
        channel, data = message[0], message[1:]
        if channel in outputs:
            _write(outputs[channel], data)
        elif channel == ERROR:
            return exit_code(json.loads(data or b"{}"))


def exit_code(status: dict[str, Any]) -> int:
    """Of what the node says at the end; errors of the node itself are raised."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    for cause in causes:
        if cause.get("reason") == "ExitCode":
            return int(cause.get("message") or 1)
    said = errors.one_line(str(status.get("message") or "nobody says why"))
    if "executable file not found" in said or "no such file" in said:
        raise UsageError(f"the command cannot be run in that container: {said}")
    raise JobFailed(f"the command could not be run in that container: {said}")


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _send_input(session: "WebSocketSession") -> None:
    from httpx2.websockets import HTTPXWSException

    with suppress(OSError, HTTPXWSException):  # then the other side has ended, and says so
        while data := os.read(IN, 1 << 14):
            _send(session, bytes((STDIN,)) + data)
        if session.subprotocol == NEWEST:
            _send(session, bytes((CLOSE, STDIN)))


def _send(session: "WebSocketSession", data: bytes) -> None:
    """Keys and sizes come from two threads, and a message is sent as a whole."""
    with _sending:
        session.send_bytes(data)


@contextmanager
def _raw(fd: int) -> Iterator[None]:
    """Keys come one by one, as they are; afterwards the terminal is what it was."""
    import termios
    import tty

    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def _resizing(session: "WebSocketSession") -> Iterator[None]:
    untold: list[int] = []

    def tell(number: int = 0, frame: FrameType | None = None) -> None:
        untold.append(number)
        if len(untold) > 1:  # it has interrupted itself, which will see to it
            return
        while untold:
            count = len(untold)
            size = os.get_terminal_size(OUT)
            told = {"Width": size.columns, "Height": size.lines}
            _send(session, bytes((RESIZE,)) + json.dumps(told).encode())
            del untold[:count]

    tell()
    before = signal.signal(signal.SIGWINCH, tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
