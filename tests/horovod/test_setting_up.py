"""Members that are lost while a world is being set up: nobody waits for them past its end."""

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from midflight.compat.horovod.engine import talk
from midflight.compat.horovod.engine.sets import Sets
from midflight.errors import WorldChanged
from midflight.runtime.group.process_group import Group
from tests.runtime.keys import Keys, world

SECONDS = 30.0


def test_a_set_that_a_lost_member_keeps_from_being_connected_is_given_up_with_the_world() -> None:
    """gloo itself may wait for two minutes for one that was killed, and a cut does not wake it."""
    keys, everybody = Keys(), Group(world(3), "m0", "gloo")
    with ThreadPoolExecutor(1) as thread:
        adding = thread.submit(Sets(everybody, keys).add, 1, [0, 1])
        try:
            assert keys.asked_for.wait(SECONDS)
            everybody.cut()
            assert isinstance(adding.exception(SECONDS), WorldChanged)
        finally:
            keys.give_up()


def test_a_member_lost_while_it_dials_in_is_not_waited_for_past_the_end_of_the_world(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(talk, "HANDSHAKE", 2 * SECONDS)
    keys = Keys()
    first, second = (Group(world(2), name, "gloo") for name in ("m0", "m1"))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda group: group.connect(keys), (first, second)))
        listening = threads.submit(talk.connect, first, b"secret")
        ((port,), _) = second.gather([0])
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as line:
            assert line.recv(1)  # asked who it is, it says nothing
            first.cut()
            assert isinstance(listening.exception(SECONDS), WorldChanged)
    second.cut()


@contextmanager
def listening() -> Iterator[tuple[Group, "Future[dict[int, talk.Line]]", int]]:
    """The second of two members; what the first has come to, who listens, and at which port."""
    keys = Keys()
    first, second = (Group(world(2), name, "gloo") for name in ("m0", "m1"))
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda group: group.connect(keys), (first, second)))
        waiting = threads.submit(talk.connect, first, b"secret")
        ((port,), _) = second.gather([0])
        try:
            yield second, waiting, port
        finally:
            first.cut()
            second.cut()


STRANGERS = {
    "hangs up": b"",
    "speaks nonsense": b"GET / HTTP/1.1\r\n\r\n",
    "says that a huge frame comes": b"\xff\xff\xff\xff",
    "sends a frame that is none": b"\0\0\0\x02[]",
}


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_at_the_port_of_rank_0_does_not_break_the_world(said: bytes) -> None:
    with listening() as (second, waiting, port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as stranger:
            stranger.recv(1)
            stranger.sendall(said)
        line = talk._dial(second, port, b"secret")
        lines = waiting.result(SECONDS)
        assert list(lines) == [1]
        talk._close({0: line, **lines})


def test_strangers_who_say_nothing_delay_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "HANDSHAKE", 4 * SECONDS)
    with listening() as (second, waiting, port), ExitStack() as silent:
        for _ in range(talk.MOST_STRANGERS + 10):  # and more than may be there at a time
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
        line = talk._dial(second, port, b"secret")
        lines = waiting.result(SECONDS)
        assert list(lines) == [1]
        talk._close({0: line, **lines})
