"""The shell: nothing is announced before it is in the store, and nothing overtakes."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

import pytest

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Phase
from midflight.coordinator.shell import now
from midflight.errors import Conflict, StoreUnavailable
from midflight.protocol import messages as say
from midflight.protocol.wire import AsyncWire
from tests.coordinator.served import Served, next_of, served


def run(story: Callable[[Served], Awaitable[None]], **spec: object) -> None:
    async def play() -> None:
        async with served(**spec) as it:
            await story(it)

    asyncio.run(play())


async def members(it: Served, count: int) -> dict[str, AsyncWire]:
    """So many members that have dialled in, on one agent."""
    agent = await it.agent("h0", 4)
    names = [(await next_of(agent, say.StartMember)).member for _ in range(count)]
    return {name: await it.member(name) for name in names}


async def training(it: Served, count: int) -> dict[str, AsyncWire]:
    wires = await members(it, count)
    for wire in wires.values():
        form = await next_of(wire, say.Form)
        wire.send(say.MemberSettled(form.world.generation, 0))
    await it.until(lambda: it.shell.state.phase is Phase.STABLE)
    return wires


async def nothing(wire: AsyncWire, kind: type) -> bool:
    try:
        await next_of(wire, kind, 0.2)
    except TimeoutError:
        return True
    return False


def test_a_world_is_announced_only_after_it_is_in_the_store() -> None:
    async def story(it: Served) -> None:
        wires = await members(it, 1)
        it.saving.open.clear()
        wire = await it.member(next(iter(wires)))
        await it.until(lambda: it.shell.state.forming is not None)
        assert await nothing(wire, say.Form)
        it.saving.open.set()
        form = await next_of(wire, say.Form)
        saved = it.saving.saved[-1].forming
        assert saved is not None and saved.world == form.world

    run(story, np=1)


def test_no_process_is_started_before_its_name_is_in_the_store() -> None:
    async def story(it: Served) -> None:
        it.saving.open.clear()
        agent = await it.agent("h0", 4)
        await it.until(lambda: bool(it.shell.state.members))
        assert await nothing(agent, say.StartMember)
        it.saving.open.set()
        order = await next_of(agent, say.StartMember)
        assert order.member in it.saving.saved[-1].members

    run(story)


def test_a_process_is_started_once_an_agent_that_has_hung_up_is_back() -> None:
    async def story(it: Served) -> None:
        it.saving.open.clear()
        agent = await it.agent("h0", 4)
        await it.until(lambda: bool(it.shell.state.members))
        names = set(it.shell.state.members)
        agent.close()
        await it.until(lambda: not it.shell.state.hosts["h0"].connected)
        it.saving.open.set()
        await it.until(lambda: bool(it.saving.saved))
        agent = await it.agent("h0", 4)
        assert (await next_of(agent, say.StartMember)).member in names

    run(story)


def test_what_a_member_is_told_comes_in_order_even_if_some_of_it_waits_for_the_store() -> None:
    async def story(it: Served) -> None:
        wires = await training(it, 2)
        names = list(wires)
        it.saving.open.clear()
        it.shell.dispatch(events.Exited(now(), names[1], -9, ""))
        wire = wires[names[0]]
        assert (await next_of(wire, say.Over)).generation == 1, "nothing waits: it goes out at once"
        it.shell.dispatch(events.Broke(now(), names[0], 2, 0, "reset"))
        await it.until(lambda: it.shell.state.generation == 3, 5.0)
        assert await nothing(wire, say.Over), "it may not overtake the world that waits"
        it.saving.open.set()
        kinds = [type(await next_of(wire, say.Over | say.Form)) for _ in range(2)]
        assert kinds == [say.Over, say.Form]
        assert it.shell.state.forming is not None

    run(story, np=2)


def test_an_answer_is_given_only_after_what_it_says_is_in_the_store() -> None:
    async def story(it: Served) -> None:
        await training(it, 1)
        it.saving.open.clear()
        client = await it.dial("client")
        client.send(say.ResizeRequested(1, 0, 0, (), 5.0))
        await asyncio.sleep(0.1)
        it.saving.open.set()
        assert (await next_of(client, say.RequestEnded)).ok

    run(story, np=1)


def test_a_store_that_fails_for_a_while_delays_and_loses_nothing() -> None:
    async def story(it: Served) -> None:
        it.saving.errors = [StoreUnavailable("the leader is lost")]
        wires = await members(it, 1)
        form = await next_of(wires["m0"], say.Form)
        assert form.world.names == ("m0",)
        assert it.said("the state could not be saved, trying again: the leader is lost")

    run(story, np=1)


def test_a_coordinator_that_was_replaced_stops_and_announces_nothing() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 4)
        order = await next_of(agent, say.StartMember)
        it.saving.errors = [Conflict("jobs/job/state", 1, None)] * 3
        wire = await it.member(order.member)
        assert await asyncio.wait_for(it.shell.over, 5.0) == 3
        assert await nothing(wire, say.Form)
        assert it.said("another coordinator has taken this job over")

    run(story, np=1)


def test_the_end_takes_the_agents_down_and_carries_the_exit_code() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 4)
        await it.until(lambda: "h0" in it.shell.state.hosts)
        it.shell.dispatch(events.StopAsked(now(), "interrupted", 130))
        assert (await next_of(agent, say.Shutdown)).reason == "interrupted"
        agent.close()
        assert await asyncio.wait_for(it.shell.over, 5.0) == 130
        assert it.saving.saved[-1].exit_code == 130

    run(story)


def test_agents_are_told_of_the_end_when_the_store_knows_of_it() -> None:
    """They end then, and nobody else could tell a successor how their members ended."""

    async def story(it: Served) -> None:
        agent = await it.agent("h0", 4)
        await it.until(lambda: "h0" in it.shell.state.hosts)
        it.saving.open.clear()
        it.shell.dispatch(events.StopAsked(now(), "interrupted", 130))
        assert await nothing(agent, say.Shutdown)
        it.saving.open.set()
        await next_of(agent, say.Shutdown)
        assert it.saving.saved[-1].phase is Phase.FAILED
        agent.close()

    run(story)


def test_a_store_that_is_away_does_not_keep_the_agents_from_ending() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 4)
        await it.until(lambda: "h0" in it.shell.state.hosts)
        it.saving.errors = [StoreUnavailable("the leader is lost")] * 10
        it.shell.dispatch(events.StopAsked(now(), "interrupted", 130))
        await next_of(agent, say.Shutdown)
        assert it.saving.errors
        agent.close()

    run(story)


def test_processes_are_started_though_the_agent_that_was_asked_for_a_port_hangs_up() -> None:
    async def story(it: Served) -> None:
        first, second = await it.agent("h0", 1), await it.agent("h1", 1)
        while not isinstance(await first.receive(), say.FindPort):
            continue
        first.abort()
        await next_of(second, say.StartMember)

    run(story, np=2)


def test_who_is_started_again_is_told_of_the_port_where_the_others_are() -> None:
    async def story(it: Served) -> None:
        first, second = await it.agent("h0", 1), await it.agent("h1", 1)
        port = (await next_of(first, say.StartMember)).environment["MASTER_PORT"]
        second.abort()
        await it.until(lambda: "h1" not in it.shell.peers.agents)
        again = await next_of(await it.agent("h1", 1), say.StartMember)
        assert (again.environment["MASTER_PORT"], again.environment["RANK"]) == (port, "1")

    run(story, np=2)


def test_requests_are_answered_when_the_job_ends() -> None:
    async def story(it: Served) -> None:
        agent = await it.agent("h0", 1)
        client = await it.dial("client")
        client.send(say.ResizeRequested(3, 0, 0, (), 60.0))
        await it.until(lambda: bool(it.shell.state.queue))
        client.send(say.StopRequested("enough"))
        assert await next_of(client, say.RequestEnded) == say.RequestEnded(False, "enough")
        agent.close()

    run(story)


def test_a_peer_that_does_not_read_is_cut_off_and_does_not_fill_the_memory() -> None:
    async def story(it: Served) -> None:
        await it.agent("h0", 1)
        await it.until(lambda: "h0" in it.shell.peers.agents)
        line = secrets.token_urlsafe(2 << 20)  # cannot be compressed by much
        for _ in range(24):
            it.shell.peers.tell_agent("h0", say.Shutdown(0.0, line))
        await it.until(lambda: "h0" not in it.shell.peers.agents)
        assert await it.answers()

    run(story)


def test_the_coordinator_does_not_end_before_the_store_has_the_end() -> None:
    async def story(it: Served) -> None:
        it.saving.errors = [StoreUnavailable("the leader is lost")] * 2
        it.shell.dispatch(events.StopAsked(now(), "interrupted", 130))
        assert await asyncio.wait_for(it.shell.over, 10.0) == 130
        assert not it.saving.errors
        assert it.saving.saved[-1].phase is Phase.FAILED

    run(story, np=1)


def test_an_end_that_raises_ends_the_coordinator_instead_of_being_waited_for() -> None:
    async def story(it: Served) -> None:
        it.shell.peers.tell_all_agents = _raise  # type: ignore[method-assign]
        it.shell.dispatch(events.StopAsked(now(), "interrupted", 130))
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(it.shell.over, 5.0)

    run(story, np=1)


def _raise(message: object) -> None:
    raise ZeroDivisionError
