"""The streams of a remote command, numbered as Kubernetes does, whatever carries them."""

from typing import Protocol

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")  # best first


class Remote(Protocol):
    """Whoever asked for the command."""

    async def receive(self) -> tuple[int, bytes] | None:
        """The next piece of a channel, empty at its end; None when the caller has gone."""

    async def send(self, channel: int, data: bytes) -> None: ...

    async def finish(self) -> None:
        """There is nothing more to send."""


def chosen(offered: str) -> str | None:
    """The best of the protocols that a caller offers, separated by commas."""
    names = {name.strip() for name in offered.split(",")}
    return next((protocol for protocol in PROTOCOLS if protocol in names), None)
