"""A member's line to its coordinator, over real sockets: whose refusal counts, whose does not."""

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from midflight.errors import MidflightError
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import Beat, MemberJoined
from midflight.protocol.wire import AsyncWire, accept
from midflight.runtime.link import Link

OURS, THEIRS = b"the secret of this run", b"the secret of another"
PATIENCE = 20.0


class Member:
    """What the session is to its link: it says who it is, and writes down what it is told."""

    def __init__(self) -> None:
        self.gave_up: queue.Queue[str] = queue.Queue()

    def greeting(self) -> MemberJoined:
        return MemberJoined(1, 0, 0, "")

    def beat(self) -> Beat:
        return Beat(0, 0, waiting=False)

    def pending(self) -> Sequence[object]:
        return ()

    def hear(self, message: object) -> None:
        raise AssertionError(message)

    def give_up(self, reason: str) -> None:
        self.gave_up.put(reason)


class Coordinators:
    """One address; at first its coordinator knows one secret, after its death another's does."""

    def __init__(self, *secrets: bytes) -> None:
        self._secrets = list(secrets)
        self.met: queue.Queue[object] = queue.Queue()
        self.address = ""
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with await asyncio.start_server(self._answer, "127.0.0.1", 0) as server:
            self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            self._ready.set()
            await self._stop.wait()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = AsyncWire(reader, writer)
        try:
            await accept(wire, self._secrets.pop(0) if self._secrets[1:] else self._secrets[0])
            self.met.put(await wire.receive())
        except MidflightError as error:
            self.met.put(error)
        finally:
            wire.close()

    @contextmanager
    def serving(self) -> Iterator["Coordinators"]:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        yield self
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)


def worker_env(coordinator: str) -> WorkerEnv:
    return WorkerEnv("run", "m0", "h", 0, "127.0.0.1", coordinator, "", PATIENCE, 1.0, "")


def test_a_member_that_was_let_in_once_dials_on_past_a_stranger_at_the_old_address() -> None:
    member = Member()
    with Coordinators(OURS, THEIRS, OURS).serving() as there:
        link = Link(worker_env(there.address), OURS, member)
        link.start()
        met = [there.met.get(timeout=PATIENCE) for _ in range(3)]
        link.close()
    assert [type(one) is MemberJoined for one in met] == [True, False, True], met
    assert member.gave_up.empty()


def test_a_member_that_was_never_let_in_takes_the_first_refusal_at_its_word() -> None:
    member = Member()
    with Coordinators(THEIRS).serving() as there:
        link = Link(worker_env(there.address), OURS, member)
        link.start()
        assert "token does not match" in member.gave_up.get(timeout=PATIENCE)
        link.close()
