"""Agents with a good token that speak for others, over real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from midflight.coordinator.output import Printer
from midflight.protocol import messages as say
from tests.coordinator.served import Served, next_of, served


def run(story: Callable[[Served], Awaitable[None]], **spec: object) -> None:
    async def play() -> None:
        async with served(**spec) as it:
            await story(it)

    asyncio.run(play())


async def two_agents(it: Served) -> tuple[say.StartMember, say.StartMember]:
    """Both have been told to start a member; the first one's, and the second one's."""
    agents = [await it.agent("h0", 1), await it.agent("h1", 1)]
    first, second = [await next_of(agent, say.StartMember) for agent in agents]
    return first, second


def output(member: str, stream: str = "stdout", at: float = 1.0) -> say.Output:
    return say.Output(member, stream, ("owned",), at)


def test_a_member_s_name_that_is_a_path_writes_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "output"

    async def story(it: Served) -> None:
        printer = Printer(it.shell.state.spec, verbose=False)
        it.door._printer = printer
        agent = await it.agent("h0", 2)
        order = await next_of(agent, say.StartMember)
        agent.send(output("../../escaped"))
        agent.send(output(order.member, "../../../escaped"))
        agent.send(say.AgentBeat())
        with pytest.raises(Exception, match="closed"):
            await next_of(agent, say.AgentBeatHeard)
        printer.close()

    run(story, output_dir=str(folder))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "words",
    [
        lambda member: output(member),
        lambda member: say.MemberExited(member, 0, ""),
        lambda member: say.MemberStarted(member, 1, warm=False),
        lambda member: say.MemberNotStarted(member, "no"),
        lambda member: say.MemberProbed(member, "gone"),
    ],
)
def test_an_agent_cannot_speak_for_another_agent_s_member(
    words: Callable[[str], object],
) -> None:
    async def story(it: Served) -> None:
        _, order = await two_agents(it)
        liar = it.shell.peers.agents["h0"]
        before = it.shell.state.members[order.member]
        wire = it.wires["h0"]
        wire.send(words(order.member))
        await it.until(lambda: it.said(f"{order.member} is not on host h0"))
        await it.until(lambda: it.shell.peers.agents.get("h0") is not liar)
        assert it.shell.state.members[order.member].pid == before.pid

    run(story)


def test_an_agent_cannot_join_with_another_agent_s_member() -> None:
    async def story(it: Served) -> None:
        _, order = await two_agents(it)
        wire = await it.dial("agent", "h2")
        wire.send(say.AgentJoined(1, "10.0.0.9", 1, (say.RunningMember(order.member, 0, 1),)))
        await it.until(lambda: it.said(f"{order.member} is not on host h2"))
        assert "h2" not in it.shell.state.hosts

    run(story)


@pytest.mark.parametrize("words", [{"stream": "stdin"}, {"at": 1e300}, {"at": -1.0}])
def test_output_of_another_form_is_refused(words: dict[str, object]) -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 2)
        order = await next_of(agent, say.StartMember)
        agent.send(output(order.member, **words))  # type: ignore[arg-type]
        await it.until(lambda: it.said("closed the connection of agent h0"))

    run(story)


@pytest.mark.parametrize(
    "name", ["h0\nmidflight: the job succeeded", "h 0", "", "h" * 3000, "h\x1b[2J", "h\u202e"]
)
def test_an_agent_with_a_name_that_forges_lines_is_not_let_in(name: str) -> None:
    async def story(it: Served) -> None:
        wire = await it.dial("agent", name)
        wire.send(say.AgentJoined(1, "10.0.0.9", 1, ()))
        await it.until(lambda: it.said("wanted a printable name without blanks"))
        assert not it.shell.state.hosts
        assert all("\n" not in line and len(line) < 1000 for line in it.printer.lines)

    run(story)


def test_a_line_of_output_that_is_several_is_refused() -> None:
    """The others would come without the label of their member."""

    async def story(it: Served) -> None:
        agent = await it.agent("h0", 2)
        order = await next_of(agent, say.StartMember)
        agent.send(say.Output(order.member, "stdout", ("a\nmidflight: forged",), 1.0))
        await it.until(lambda: it.said("got an end of line in one"))

    run(story)


def test_the_end_of_a_member_that_nobody_placed_is_not_told() -> None:
    async def story(it: Served) -> None:
        ended: list[str] = []
        it.printer.ended = lambda member, *_: ended.append(member)  # type: ignore[method-assign]
        agent = await it.agent("h0", 1)
        order = await next_of(agent, say.StartMember)
        agent.send(say.MemberExited("m99", 1, "forged"))
        agent.send(say.MemberExited(order.member, 1, ""))
        await it.until(lambda: ended == [order.member])

    run(story, np=1)


def test_the_last_lines_of_a_member_that_has_ended_are_shown() -> None:
    async def story(it: Served) -> None:
        shown: list[object] = []
        it.printer.output = lambda *words: shown.append(words)  # type: ignore[method-assign]
        agent = await it.agent("h0", 1)
        order = await next_of(agent, say.StartMember)
        agent.send(say.MemberStarted(order.member, 1, warm=False))
        agent.send(say.MemberExited(order.member, 1, ""))
        agent.send(output(order.member))
        await it.until(lambda: len(shown) == 1)

    run(story, np=1)
