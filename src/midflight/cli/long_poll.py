"""Waiting for a job, as a person waits: with a line of progress on a terminal.

Ctrl-C ends the waiting and nothing else, and that is said.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from midflight import long_poll
from midflight.cli import messages
from midflight.cli.cluster import connect
from midflight.cli.progress import Progress
from midflight.protocol.cluster_api import ClusterApi
from midflight.protocol.views import JobView


def until(
    client: ClusterApi, namespace: str, name: str, what: str, timeout: float, left: str = ""
) -> JobView | None:
    """As `long_poll.until`. `left` is what is said to Ctrl-C."""
    left = left or f"no longer waiting for {name}; it is not affected"
    with on_interrupt(left), Progress(f"waiting until {name} is {what}"):
        return long_poll.until(client, connect, namespace, name, what, timeout)


@contextmanager
def on_interrupt(text: str) -> Iterator[None]:
    """Ctrl-C ends the waiting; the text says what goes on."""
    try:
        yield
    except KeyboardInterrupt:
        messages.info(text)
        raise
