"""Where a member's two streams go: by default into pipes, and from there to the coordinator.

Whoever runs agents in another way (torchrun leaves its workers the terminal) brings outlets of
its own. An outlet is opened before the member is started, and hears of its death.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from midflight.agent.output import MemberOutput
from midflight.protocol.messages import Output, StartMember


class Outlet(Protocol):
    @property
    def stdout(self) -> int: ...

    @property
    def stderr(self) -> int: ...

    @property
    def tail(self) -> str:
        """The last lines of stderr, as far as they passed through here."""
        ...

    @property
    def closed(self) -> asyncio.Event:
        """Set when nothing more will come out of it."""
        ...

    def started(self) -> None:
        """The member has the two descriptors now."""
        ...

    def not_started(self) -> None: ...

    def member_died(self) -> None: ...


OpenOutlet = Callable[[StartMember], Outlet]  # OSError if there is none to be had


class Pipes:
    """Lines go out as messages."""

    def __init__(self, member: str, put: Callable[[Output], None]) -> None:
        self._member = member
        self._put = put
        self._output: MemberOutput | None = None
        self._out_read, self.stdout = os.pipe()
        try:
            self._err_read, self.stderr = os.pipe()
        except OSError:
            _close(self._out_read, self.stdout)
            raise

    @property
    def tail(self) -> str:
        return self._output.tail if self._output is not None else ""

    @property
    def closed(self) -> asyncio.Event:
        assert self._output is not None
        return self._output.closed

    def started(self) -> None:
        _close(self.stdout, self.stderr)
        self._output = MemberOutput(self._member, self._out_read, self._err_read, self._put)

    def not_started(self) -> None:
        _close(self._out_read, self.stdout, self._err_read, self.stderr)

    def member_died(self) -> None:
        assert self._output is not None
        self._output.member_died()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
