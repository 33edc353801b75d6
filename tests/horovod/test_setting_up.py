"""Members that are lost while a world is being set up: nobody waits for them past its end."""

import socket
from concurrent.futures import ThreadPoolExecutor

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
