"""The coordinator's door, over real sockets: strangers learn nothing and disturb nobody."""

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable

import pytest

from midflight import deadlines
from midflight.errors import ConnectionLost, HandshakeRefused
from midflight.protocol import messages as say
from midflight.protocol import wire as wire_module
from midflight.protocol.handshake import DIALLER, VERSION, Session
from midflight.protocol.wire import FRAME_LIMIT, AsyncWire, dial, encode_frame
from tests.coordinator.served import SECRET, Served, next_of, served


def frame(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


async def refused(it: Served, speak: Callable[[say.Challenge], bytes]) -> tuple[str, bytes]:
    """What a stranger who says this gets to see: the reason, and all bytes after the challenge."""
    reader, writer = await it.open()
    challenge = await AsyncWire(reader, writer).receive()
    assert isinstance(challenge, say.Challenge)
    writer.write(speak(challenge))
    try:
        rest = await asyncio.wait_for(reader.read(), 5.0)
    except ConnectionResetError:
        rest = b""
    writer.close()
    reason = json.loads(rest[4:])["body"]["reason"] if rest else ""
    return reason, rest


def hello(challenge: say.Challenge, secret: bytes = SECRET, **changes: object) -> bytes:
    fields = {"version": VERSION, "role": "client", "name": "", "nonce": "00", **changes}
    unproven = say.Hello(**{"proof": "", **fields})  # type: ignore[arg-type]
    own = Session(challenge, unproven).proof(secret, DIALLER)
    return encode_frame(say.Hello(**{"proof": own, **fields}))  # type: ignore[arg-type]


def run(story: Callable[[Served], Awaitable[None]], **spec: object) -> None:
    async def play() -> None:
        async with served(**spec) as it:
            await story(it)

    asyncio.run(play())


def test_a_wrong_token_is_refused_logged_and_nothing_is_revealed() -> None:
    async def story(it: Served) -> None:
        reason, rest = await refused(it, lambda c: hello(c, b"another secret"))
        assert reason == "the token does not match; use this run's token file"
        assert SECRET not in rest
        assert it.said("refused a connection from 127.0.0.1")
        assert not it.said(SECRET.decode())
        assert await it.answers()

    run(story)


def test_the_one_who_dials_with_a_wrong_token_is_told_so() -> None:
    async def story(it: Served) -> None:
        with pytest.raises(HandshakeRefused, match="the token does not match"):
            await dial(it.address, "agent", "h0", b"another secret")

    run(story)


def test_another_version_is_told_which_one_is_spoken_here() -> None:
    async def story(it: Served) -> None:
        reason, _ = await refused(it, lambda c: hello(c, version=VERSION + 1))
        assert f"protocol version {VERSION}" in reason and f"the other {VERSION + 1}" in reason
        assert await it.answers()

    run(story)


def test_an_unknown_role_is_refused() -> None:
    async def story(it: Served) -> None:
        reason, _ = await refused(it, lambda c: hello(c, role="admin"))
        assert reason == "unknown role 'admin'"

    run(story)


def test_a_proof_cannot_be_used_again() -> None:
    async def story(it: Served) -> None:
        heard: list[bytes] = []

        def record(challenge: say.Challenge) -> bytes:
            heard.append(hello(challenge))
            return b""

        await asyncio.wait_for(asyncio.shield(_listen_once(it, record)), 5.0)
        reason, _ = await refused(it, lambda c: heard[0])
        assert "token does not match" in reason

    run(story)


async def _listen_once(it: Served, speak: Callable[[say.Challenge], bytes]) -> None:
    reader, writer = await it.open()
    challenge = await AsyncWire(reader, writer).receive()
    assert isinstance(challenge, say.Challenge)
    speak(challenge)
    writer.close()


def greeting(fields: bytes) -> bytes:
    return b'{"type": "Hello", "body": {"name": "", ' + fields + b"}}"


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"[]",
        b"{}",
        b'{"type": "Hello"}',
        b'{"type": "Hello", "body": {"version": 1}}',
        b'{"type": "os.system", "body": {}}',
        b'{"type": ["Hello"], "body": {}}',
        b'{"type": "StatusRequested", "body": {}}',
        greeting(b'"version": "1", "role": "client", "nonce": "", "proof": ""'),
        greeting(b'"version": 1, "role": "client", "nonce": "\\ud800", "proof": ""'),
        greeting(b'"version": 1, "role": "client", "nonce": "", "proof": "\\udfff"'),
        b"[" * 2000 + b"]" * 2000,
        b"9" * 4000,
        b"",
    ],
)
def test_what_is_no_greeting_is_refused_and_the_others_are_served(content: bytes) -> None:
    async def story(it: Served) -> None:
        reason, _ = await refused(it, lambda c: frame(content))
        assert reason in ("not understood", "the first message must be a Hello")
        assert it.said("refused a connection")
        assert await it.answers()

    run(story)


def test_a_frame_of_a_gigabyte_is_refused_before_it_is_read() -> None:
    async def story(it: Served) -> None:
        reason, _ = await refused(it, lambda c: struct.pack(">I", 1 << 30) + b"x" * 1000)
        assert reason in ("not understood", "")
        assert it.said(f"a frame of {1 << 30} bytes was announced, more than 4096")
        assert await it.answers()

    run(story)


def test_one_who_says_nothing_is_cut_off_in_time_and_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(it: Served) -> None:
        strangers = [await it.open() for _ in range(20)]
        assert await it.answers()
        monkeypatch.setattr(wire_module, "HANDSHAKE", 10.0)
        for reader, writer in strangers:
            await asyncio.wait_for(reader.read(), 5.0)  # it ends: the door was closed
            writer.close()
        assert await it.answers()

    monkeypatch.setattr(wire_module, "HANDSHAKE", 0.5)
    run(story)


def test_half_a_greeting_and_a_closed_door_harm_nobody() -> None:
    async def story(it: Served) -> None:
        for part in (b"", b"\x00\x00", b"\x00\x00\x00\x20abc"):
            _, writer = await it.open()
            writer.write(part)
            writer.close()
        await it.until(lambda: sum("refused" in line for line in it.printer.lines) == 3)
        assert await it.answers()

    run(story)


def test_a_coordinator_that_does_not_know_the_token_is_not_believed() -> None:
    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = AsyncWire(reader, writer)
        wire.send(say.Challenge(VERSION, "11"))
        await wire.receive()
        wire.send(say.Accepted("0" * 64))
        await wire.flush()

    async def story() -> None:
        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(HandshakeRefused, match="does not know this run's token"):
            await dial(f"127.0.0.1:{port}", "member", "m0", SECRET)
        server.close()

    asyncio.run(story())


# --- those who were let in --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (say.MemberExited("m0", 0, ""), "a client may not say MemberExited"),
        (say.Form, "Form: field 'world' is missing"),
    ],
)
def test_a_client_that_says_what_it_may_not_is_sent_away(message: object, words: str) -> None:
    async def story(it: Served) -> None:
        wire = await it.dial("client")
        if isinstance(message, type):
            wire.send_frame(frame(b'{"type": "Form", "body": {}}'))
        else:
            wire.send(message)
        await it.until(lambda: it.said(words))
        assert it.said("closed the connection of client")
        assert await it.answers()

    run(story)


def test_an_agent_has_to_say_who_it_is_first() -> None:
    async def story(it: Served) -> None:
        wire = await it.dial("agent", "h0")
        wire.send(say.AgentBeat())
        await it.until(lambda: it.said("wanted AgentJoined first, got AgentBeat"))
        assert it.shell.state.hosts == {}
        assert await it.answers()

    run(story)


def test_a_frame_above_the_limit_is_refused_after_the_handshake_too() -> None:
    async def story(it: Served) -> None:
        wire = await it.dial("client")
        wire.send_frame(struct.pack(">I", FRAME_LIMIT + 1))
        await it.until(lambda: it.said(f"more than {FRAME_LIMIT}"))
        assert await it.answers()

    run(story)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e999", b"1" + b"0" * 400])
def test_a_timeout_that_is_no_number_is_refused(number: bytes) -> None:
    async def story(it: Served) -> None:
        wire = await it.dial("client")
        body = b'{"to": 3, "add": 0, "remove": 0, "names": [], "timeout": ' + number + b"}"
        wire.send_frame(frame(b'{"type": "ResizeRequested", "body": ' + body + b"}"))
        await it.until(lambda: it.said("ResizeRequested.timeout: wanted float"))
        assert await it.answers()

    run(story)


def test_a_member_that_speaks_nonsense_is_as_good_as_disconnected() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 2)
        order = await next_of(agent, say.StartMember)
        wire = await it.member(order.member)
        await it.until(lambda: it.shell.state.members[order.member].connected)
        wire.send(say.KeySet(1, "a", "no number"))
        wire.send(say.KeyAdd(1, "a", 1, 1))
        await it.until(lambda: not it.shell.state.members[order.member].connected)
        assert it.said("key 'a' is not a number")
        assert await it.answers()

    run(story, np=1)


def test_keys_are_answered_as_soon_as_all_of_them_are_there() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 2)
        names = [(await next_of(agent, say.StartMember)).member for _ in range(2)]
        first, second = [await it.member(name) for name in names]
        first.send(say.KeysWanted(1, ("a", "b"), 7))
        second.send(say.KeySet(1, "a", "QQ=="))
        second.send(say.KeySet(1, "b", "Qg=="))
        assert (await next_of(first, say.KeyValues)) == say.KeyValues(7, ("QQ==", "Qg=="))
        second.send(say.KeyAdd(1, "count", 2, 8))
        assert (await next_of(second, say.KeyValues)) == say.KeyValues(8, ("2",))

    run(story)


def test_a_second_connection_of_the_same_member_takes_the_place_of_the_first() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 1)
        name = (await next_of(agent, say.StartMember)).member
        old = await it.member(name)
        assert (await next_of(old, say.Form)).world.names == (name,)
        new = await it.member(name)
        assert (await next_of(new, say.Form)).world.names == (name,)
        await asyncio.sleep(0.05)
        assert it.shell.state.members[name].connected, "the old one's end is not the new one's"

    run(story, np=1)


def test_a_stranger_among_the_members_is_dismissed() -> None:
    async def story(it: Served) -> None:
        wire = await it.member("m99")
        assert (await next_of(wire, say.Dismiss)).failed

    run(story)


def test_a_request_is_answered_to_the_one_who_asked() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 1)
        name = (await next_of(agent, say.StartMember)).member
        member = await it.member(name)
        form = await next_of(member, say.Form)
        member.send(say.MemberSettled(form.world.generation, 0))
        client = await it.dial("client")
        client.send(say.ResizeRequested(9, 0, 0, (), 5.0))
        answer = await next_of(client, say.RequestEnded)
        assert answer == say.RequestEnded(False, "9 members would be more than --max-np 4")

    run(story, np=1)


def test_an_agent_s_beat_is_heard_and_answered() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 1)
        agent.send(say.AgentBeat())
        assert await next_of(agent, say.AgentBeatHeard)
        agent.close()
        await it.until(lambda: not it.shell.state.hosts["h0"].connected)

    run(story)


def test_a_member_is_told_how_often_so_many_members_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 2)
        names = [(await next_of(agent, say.StartMember)).member for _ in range(2)]
        member = await it.member(names[0])
        member.send(say.Beat(0, 0, waiting=False))
        assert await next_of(member, say.BeatHeard) == say.BeatHeard(0.5)

    monkeypatch.setattr(deadlines, "BEATS_HEARD", 4)
    run(story)


@pytest.mark.parametrize(
    ("role", "greeting"),
    [
        ("agent", say.AgentJoined(1, "127.0.0.1", 1, ())),
        ("member", say.MemberJoined(1, 0, 0, "")),
    ],
)
def test_who_comes_in_while_another_coordinator_takes_over_is_sent_to_dial_again(
    role: str, greeting: object
) -> None:
    async def story(it: Served) -> None:
        wire = await dial(it.address, role, "late", SECRET)
        it.shell.retired = True
        wire.send(greeting)
        with pytest.raises(ConnectionLost):
            async with asyncio.timeout(5.0):
                await wire.receive()

    run(story)
