"""A gate that lets so many through at a time, and takes turns between those who wait.

Who waits is known by a namespace. However many one namespace has waiting, another's first is let
through next; and no namespace holds more than its share of the places, so that slow work of one
leaves places for the others.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairGate:
    def __init__(self, at_once: int, share: int) -> None:
        """`at_once`: of all together; `share`: of one namespace."""
        self._at_once, self._share = at_once, share
        self._inside: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        self._let_in()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._inside[namespace] -= 1
                self._inside += Counter()  # without those who have nobody inside
            self._let_in()

    def _let_in(self) -> None:
        """The next of each namespace in turn, while there are places."""
        refused: set[str] = set()
        while self._waiting and self._inside.total() < self._at_once:
            namespace = next((n for n in self._waiting if n not in refused), None)
            if namespace is None:
                return
            queue = self._waiting[namespace]
            while queue and queue[0].done():  # cancelled while it waited
                queue.popleft()
            if not queue:
                del self._waiting[namespace]
            elif self._inside[namespace] >= self._share:
                refused.add(namespace)
            else:
                queue.popleft().set_result(None)
                self._inside[namespace] += 1
                self._waiting.move_to_end(namespace)
