"""How many strangers may stand at the door, and how often they are spoken of.

A connection is a stranger's until its handshake is done. There is a cap for each address and one in
all, so that strangers cannot use up the descriptors that members need. At the cap the one who has
waited longest has to go, if a peer with the token would have been done by then; otherwise the
newcomer. Who has the token dials again.
"""

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

MOST_STRANGERS = 1024
LOOPBACK = ("127.0.0.1", "::1")  # where a thousand members of one machine may dial at once
HONEST_SECONDS = 1.0  # a handshake takes milliseconds; on a busy machine more
SAID_AT_ONCE = 20  # lines about refusals in each window
WINDOW = 10.0  # seconds
ACCEPTED_AT_ONCE = 16  # and so many errors are reported at once when none can be
BACKLOG = 2048  # a thousand members may dial at once; one that does not fit waits for seconds
_READ_AHEAD = 1 << 17  # bytes

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, eq=False)
class Stranger:
    address: str
    since: float
    drop: Callable[[], None]


class Strangers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[Stranger, None] = {}  # in the order in which they came

    def admit(self, address: str, now: float, drop: Callable[[], None]) -> Stranger | None:
        """None: there are too many already. Another may be dropped instead."""
        own = [stranger for stranger in self._waiting if stranger.address == address]
        most_of_one = self._most if address in LOOPBACK else max(1, self._most // 2)
        crowd = own if len(own) >= most_of_one else list(self._waiting)
        full = crowd is own or len(self._waiting) >= self._most
        if full:
            first = crowd[0]
            if now - first.since < HONEST_SECONDS:
                return None
            self.leave(first)
            first.drop()
        newcomer = Stranger(address, now, drop)
        self._waiting[newcomer] = None
        return newcomer

    def leave(self, stranger: Stranger) -> None:
        """It has shown who it is, or is gone."""
        self._waiting.pop(stranger, None)


def most_strangers(members: int) -> int:
    """Room for so many members that all dial at once, but only a quarter of the descriptors.

    The rest is for peers with the token. Members that are refused dial again and again: a busy
    coordinator would do nothing but refuse them.
    """
    most = max(MOST_STRANGERS, members)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft < 0 else max(4, min(most, soft // 4))


class Throttle:
    """Says the first lines of each window at once, and of the others how many there were."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._said = 0
        self._unsaid = 0
        self._ends: asyncio.TimerHandle | None = None

    def say(self, line: str, level: str) -> None:
        if self._ends is None:
            self._ends = asyncio.get_running_loop().call_later(WINDOW, self._end)
        if self._said < SAID_AT_ONCE:
            self._said += 1
            self._say(line, level)
        else:
            self._unsaid += 1

    def _end(self) -> None:
        unsaid, self._unsaid, self._said, self._ends = self._unsaid, 0, 0, None
        if unsaid:
            self._say(f"refused {unsaid:,} more connections within {WINDOW:g} s", "warning")


async def answer_at(listener: socket.socket, answer: Answer) -> asyncio.Server:
    """A server that goes on with other work between the connections that it takes."""
    server = await asyncio.start_server(
        answer, sock=listener, limit=_READ_AHEAD, backlog=ACCEPTED_AT_ONCE
    )
    listener.listen(BACKLOG)
    return server


def report_accept_errors(throttle: Throttle) -> Callable[[asyncio.AbstractEventLoop, Any], None]:
    """An exception handler for the loop; asyncio itself accepts again after a second."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and "accept" in context["message"]:
            line = f"cannot take another connection: {error.strerror}; raise `ulimit -n`"
            throttle.say(line, "warning")
        else:
            loop.default_exception_handler(context)

    return handle
