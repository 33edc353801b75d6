"""What a coordinator writes down about those who ask it to change the run."""

import asyncio
import json
import stat
from pathlib import Path
from typing import Any

from midflight.protocol import messages as say
from midflight.protocol.audit import Caller, caller_of
from tests.coordinator.served import Served, next_of, served

ADA = Caller("ada", 7, 4711)


def notes(path: Path, story: Any) -> list[dict[str, Any]]:
    """Of a run of one member, at which this happens."""

    async def play() -> None:
        async with served(path, np=1) as it:
            agent = await it.agent("h0", 1)
            member = await it.member((await next_of(agent, say.StartMember)).member)
            form = await next_of(member, say.Form)
            member.send(say.MemberSettled(form.world.generation, 0))
            await story(it)

    asyncio.run(play())
    return [json.loads(line) for line in path.read_text().splitlines()]


async def ask(it: Served, request: object) -> say.RequestEnded:
    wire = await it.dial("client", str(ADA))
    wire.send(request)
    ended = await next_of(wire, say.RequestEnded)
    assert isinstance(ended, say.RequestEnded)
    return ended


def test_who_resized_or_stopped_a_run_is_written_down_with_the_outcome(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def story(it: Served) -> None:
        await ask(it, say.ResizeRequested(9, 0, 0, (), 5.0))
        await ask(it, say.ResizeRequested(1, 0, 0, (), 5.0))
        operator = await it.dial("client", "midflight-operator")
        operator.send(say.StopRequested("it was deleted"))
        await operator.finish()

    refused, done, stopped = notes(path, story)
    who = {"user": "ada", "uid": 7, "pid": 4711, "from": "127.0.0.1", "about": "job"}
    assert who.items() <= refused.items() and who.items() <= done.items()
    assert (refused["what"], refused["outcome"]) == ("resize job --to 9", "refused")
    assert refused["reason"] == "9 members would be more than --max-np 4"
    assert (done["what"], done["outcome"]) == ("resize job --to 1", "done")
    assert (stopped["user"], stopped["uid"]) == ("midflight-operator", None)
    assert (stopped["what"], stopped["reason"]) == ("stop job", "it was deleted")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_request_that_is_repeated_over_another_connection_is_noted_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def story(it: Served) -> None:
        request = say.ResizeRequested(2, 0, 0, (), 60.0, id="the same")
        first = await it.dial("client", str(ADA))
        first.send(request)
        await next_of(first, say.Progress)
        first.abort()
        second = await it.dial("client", str(ADA))
        second.send(request)
        await next_of(second, say.Progress)
        await ask(it, say.ResizeRequested(1, 0, 0, (), 60.0))
        await next_of(second, say.RequestEnded)

    found = [(each["what"], each["outcome"]) for each in notes(path, story)]
    assert sorted(found) == [("resize job --to 1", "done"), ("resize job --to 2", "refused")]


def test_who_changed_the_hosts_or_moved_a_run_is_written_down_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def story(it: Served) -> None:
        launcher = await it.dial("client", str(ADA))
        for hosts in ({"h0": 1}, {"h0": 1}, {"h0": 1, "h1": 2}):
            launcher.send(say.HostsChanged(hosts))
        for _ in range(2):
            launcher.send(say.JobLives("10.0.0.9:1"))
        await launcher.finish()

    found = notes(path, story)
    assert [each["what"] for each in found] == [
        "hosts of job: h0:1",
        "hosts of job: h0:1,h1:2",
        "job goes on at 10.0.0.9:1",
    ]
    assert {each["user"] for each in found} == {"ada"}


def test_a_client_s_name_is_read_whatever_it_is() -> None:
    assert caller_of(str(ADA)) == ADA
    assert caller_of("midflight-operator") == Caller("midflight-operator")
    assert caller_of("a/b/c") == Caller("a/b/c")
    assert caller_of("x" * 4000) == Caller("x" * 100)
