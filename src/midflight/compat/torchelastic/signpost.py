"""The port of a static rendezvous, which nodes and workers share.

Newcomers know no other port of the job, and rank 0 listens there for the other workers. So a node
holds it only to tell newcomers where the coordinator is: until its first worker starts, and again
while a node is missing and no worker has the port.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from midflight.compat.torchelastic.places import listen
from midflight.coordinator.admission import Answer, answer_at

_LOOK_SECONDS = 0.5


class Signpost:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def stand(self, listener: socket.socket) -> None:
        self._server = await answer_at(listener, self._answer)

    async def stand_again(self, place: tuple[str, int], is_needed: Callable[[], bool]) -> None:
        """Whenever it is needed, for as long as the node is there."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._server is None and is_needed():
                with contextlib.suppress(OSError):  # a worker has it
                    await self.stand(listen(*place))

    def withdraw(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
