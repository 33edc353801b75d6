"""A member's line to its coordinator, over real sockets: whose refusal counts, whose does not."""

import os
import queue
import resource
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import (
    Beat,
    BeatHeard,
    KeySet,
    MemberJoined,
    MemberSettled,
    RankKeys,
    RankKeysWanted,
)
from midflight.protocol.wire import SyncWire, accept_blocking
from midflight.runtime.membership.link import Absence, Link, Pulse, SaidKeys, _Ticket
from tests.runtime.coordinators import OURS, PATIENCE, THEIRS, Coordinators

SELECT = 1024  # descriptors from this one on are not for select()


class Member:
    """What the session is to its link: it says who it is, and writes down what it is told."""

    def __init__(self) -> None:
        self.gave_up: queue.Queue[str] = queue.Queue()
        self.news: tuple[object, ...] = ()

    def greeting(self) -> MemberJoined:
        return MemberJoined(1, 0, 0, "")

    def beat(self) -> Beat:
        return Beat(0, 0, waiting=False)

    def pending(self) -> Sequence[object]:
        return self.news

    def need(self) -> str | None:
        return None

    def hear(self, message: object) -> None:
        raise AssertionError(message)

    def give_up(self, reason: str) -> None:
        self.gave_up.put(reason)


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


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize(
    "put_in",
    [b"\0\0\0\x05hello" + bytes(16), b"\x17\x03\x03\0 " + b"x" * 32, b"\x15\x03\x03\0\x02\x01\0"],
    ids=["frame", "record", "alert"],
)
def test_what_somebody_puts_into_a_line_costs_a_reconnect_only(put_in: bytes, tls: bool) -> None:
    member, met, lines = Member(), queue.Queue[object](), list[SyncWire]()

    def serve() -> None:
        for _ in range(2):
            sock, _ = server.accept()
            sock.settimeout(PATIENCE)
            wire, _ = accept_blocking(sock, OURS, tls=tls)
            met.put(wire.receive())
            sock.sendall(put_in)
            lines.append(wire)

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve)
        serving.start()
        link = Link(worker_env(f"127.0.0.1:{server.getsockname()[1]}"), OURS, member)
        link.start()
        joined = [met.get(timeout=PATIENCE) for _ in range(2)]
        link.close()
        serving.join(PATIENCE)
    for line in lines:
        line.close()
    assert all(isinstance(one, MemberJoined) for one in joined)
    assert member.gave_up.empty()


def test_what_is_said_while_the_link_greets_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is too late for the greeting, so it has to be sent after it."""
    send = SyncWire.send
    said: list[threading.Thread] = []

    def send_and_be_overtaken(wire: SyncWire, message: object) -> None:
        send(wire, message)
        if isinstance(message, MemberJoined):
            said.append(threading.Thread(target=lambda: link.send(MemberSettled(2, 5))))
            said[0].start()
            said[0].join(0.2)

    monkeypatch.setattr(SyncWire, "send", send_and_be_overtaken)
    with Coordinators(OURS, hangs_up=False).serving() as there:
        link = Link(worker_env(there.address), OURS, Member())
        link.start()
        assert there.first(MemberSettled) == MemberSettled(2, 5)
        link.close()
    said[0].join(PATIENCE)


def test_a_key_that_may_not_have_arrived_is_said_again_after_a_reconnect() -> None:
    with Coordinators(OURS, hangs_up=False).serving() as there:
        link = Link(worker_env(there.address), OURS, Member())
        link.start()
        there.first(MemberJoined)
        link.set_key(3, "rank/0", "here")
        assert there.first(KeySet) == KeySet(3, "rank/0", "here")
        assert link._wire is not None
        link._wire.sock.shutdown(socket.SHUT_RDWR)
        there.first(MemberJoined)
        assert there.first(KeySet) == KeySet(3, "rank/0", "here")
        link.close()


def test_keys_of_worlds_before_the_one_of_now_are_not_said_again() -> None:
    said = SaidKeys()
    keys = [KeySet(generation, "rank/0", "here") for generation in (3, 4, 5)]
    for key in keys:
        said.add(key)
    assert said.again() == tuple(keys[1:])


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """So many are open that whatever is opened now has a number that select() cannot take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * SELECT
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"no process may open {wanted} descriptors here: the hard limit is {hard}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(SELECT + 76)]
    yield
    for descriptor in opened:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_link_works_beyond_the_descriptors_of_select() -> None:
    """As in a member of a large world: each other member costs it two."""
    member = Member()
    with Coordinators(OURS, hangs_up=False).serving() as there:
        link = Link(worker_env(there.address), OURS, member)
        link.start()
        there.first(MemberJoined)
        link.set_key(3, "rank/0", "here")
        assert there.first(KeySet) == KeySet(3, "rank/0", "here")
        assert link._wire is not None
        assert min(link._wire.sock.fileno(), link._woken.fileno()) >= SELECT
        for step in (5, 6):  # by its thread, which waits for both of them
            member.news = (MemberSettled(2, step),)
            link.say_pending()
            while there.first(MemberSettled) != MemberSettled(2, step):
                continue
        link.close()
    assert member.gave_up.empty()


def test_only_a_need_that_lasts_counts_while_the_coordinator_is_away() -> None:
    absence = Absence()
    needs = [None, None, "step 1", "step 1", None, "step 2", "step 3", "a world", "a world"]
    counted = [absence.seconds(need, 10.0 * number) for number, need in enumerate(needs)]
    assert counted == [0.0, 0.0, 0.0, 10.0, 0.0, 0.0, 0.0, 0.0, 10.0]


def test_a_member_beats_as_often_as_the_coordinator_says() -> None:
    pulse = Pulse(0.0)
    assert [pulse.beat_is_due(now) for now in (0.0, 0.15, 0.25)] == [True, False, True]
    pulse.heard(BeatHeard(0.5), 0.26)
    assert [pulse.beat_is_due(now) for now in (0.5, 0.75, 1.0)] == [True, False, True]


def test_an_answer_arrives_while_other_threads_ask_and_give_up() -> None:
    link = Link(worker_env("127.0.0.1:1"), OURS, Member())

    class Interrupted:
        """A question of another thread, which runs while this one is compared."""

        def __eq__(self, other: object) -> bool:
            link._tickets.pop(1, None)
            link._tickets[4] = _Ticket(RankKeysWanted(3, "0/", 2), 3)
            return False

        __hash__ = None  # type: ignore[assignment]

    asked = _Ticket(RankKeysWanted(2, "0/", 2), 2)
    gave_up = _Ticket(asked.question, 2)
    link._tickets |= {1: gave_up, 2: _Ticket(Interrupted(), 2), 3: asked}
    link._hear(RankKeys(2, "0/", ("a", "b")))
    assert asked.wait(0.0) == ("a", "b")
    assert list(link._tickets) == [2, 4]
