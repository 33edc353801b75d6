"""Waiting for a job or an operation, in pieces that whoever is asked answers.

A server that goes away meanwhile loses nothing: `connect` starts it again, and it is asked again.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from midflight.backoff import LOOK_RARELY
from midflight.deadlines import LONG_POLL
from midflight.errors import NotFound, TimedOut, Unreachable
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import JobView, OperationView

T = TypeVar("T")
Connect = Callable[[], ClusterApi]
OVER = ("succeeded", "failed")  # progress of an operation


def until(
    client: ClusterApi, connect: Connect, namespace: str, name: str, what: str, timeout: float
) -> JobView | None:
    """The job once it is `what`; None once it is gone; TimedOut after `timeout` (0: never)."""
    deadline = time.monotonic() + timeout if timeout else math.inf

    def question(server: ClusterApi) -> JobView | None:
        left = deadline - time.monotonic()
        return server.wait(namespace, name, what, max(0.0, min(LONG_POLL, left)))

    while True:
        try:
            return ask_again(client, connect, question)
        except NotFound:
            if what == "gone":
                return None
            raise
        except TimedOut:
            if time.monotonic() >= deadline - LOOK_RARELY:
                raise TimedOut(f"{name} was not {what} within {timeout:g} s") from None


def changes(
    client: ClusterApi, connect: Connect, namespace: str, job: str, operation: OperationView
) -> Iterator[OperationView]:
    """The operation after each change, by the word of whoever carries it out, until it is over."""
    while operation["progress"] not in OVER:
        known = operation

        def question(server: ClusterApi, known: OperationView = known) -> OperationView:
            return server.operation(namespace, job, known["id"], known["changes"], LONG_POLL)

        operation = ask_again(client, connect, question)
        yield operation


def ask_again(client: ClusterApi, connect: Connect, question: Callable[[ClusterApi], T]) -> T:
    """The answer, by the next server if this one goes away before it has given one."""
    try:
        return question(client)
    except Unreachable:
        time.sleep(LOOK_RARELY)
        return question(connect())
