"""Waiting for a job or an operation, in pieces that the server answers.

A server that goes away meanwhile loses nothing: it is started again, and asked again. On a
terminal there is a line of progress. Ctrl-C ends the waiting and nothing else, and that is said.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from midflight.backoff import LOOK_RARELY
from midflight.cli import messages
from midflight.cli.cluster import connect
from midflight.cli.progress import Progress
from midflight.deadlines import LONG_POLL
from midflight.errors import NotFound, TimedOut, Unreachable
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import JobView

T = TypeVar("T")


def until(
    client: ClusterApi, namespace: str, name: str, what: str, timeout: float, left: str = ""
) -> JobView | None:
    """The job once it is `what`; None once it is gone; TimedOut after `timeout` (0: never).

    `left` is what is said to Ctrl-C.
    """
    deadline = time.monotonic() + timeout if timeout else math.inf

    def question(server: ClusterApi) -> JobView | None:
        left = deadline - time.monotonic()
        return server.wait(namespace, name, what, max(0.0, min(LONG_POLL, left)))

    left = left or f"no longer waiting for {name}; it is not affected"
    with on_interrupt(left), Progress(f"waiting until {name} is {what}"):
        while True:
            try:
                return ask_again(client, question)
            except NotFound:
                if what == "gone":
                    return None
                raise
            except TimedOut:
                if time.monotonic() >= deadline - LOOK_RARELY:
                    raise TimedOut(f"{name} was not {what} within {timeout:g} s") from None


@contextmanager
def on_interrupt(text: str) -> Iterator[None]:
    """Ctrl-C ends the waiting; the text says what goes on."""
    try:
        yield
    except KeyboardInterrupt:
        messages.info(text)
        raise


def ask_again(client: ClusterApi, question: Callable[[ClusterApi], T]) -> T:
    """The answer, by the next server if this one goes away before it has given one."""
    try:
        return question(client)
    except Unreachable:
        time.sleep(LOOK_RARELY)
        return question(connect())
