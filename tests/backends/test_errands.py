"""Lanes of work: one piece at a time in each, and a last one that waits for all of a job's."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from midflight.backends.local.errands import Errands


class Scene:
    def __init__(self) -> None:
        self.errands = Errands()
        self.done: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def work(self, name: str) -> Callable[[], Awaitable[None]]:
        """Ends when its gate is opened."""
        gate = self.gates[name] = asyncio.Event()

        async def piece() -> None:
            self.done.append(f"{name} began")
            await gate.wait()
            self.done.append(f"{name} ended")

        return piece

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def play(act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(20):
            scene = Scene()
            await act(scene)
            await scene.errands.close()

    asyncio.run(whole())


def test_a_lane_does_one_piece_at_a_time_and_lanes_go_side_by_side() -> None:
    async def act(scene: Scene) -> None:
        for name, lane in (("a", "one"), ("b", "one"), ("c", "two")):
            scene.errands.do("job", lane, scene.work(name))
        await scene.settle()
        assert scene.done == ["a began", "c began"]
        scene.gates["a"].set()
        await scene.settle()
        assert scene.done[2:] == ["a ended", "b began"]
        assert scene.errands.busy("job", "one")
        scene.gates["b"].set()
        await scene.settle()
        assert not scene.errands.busy("job", "one")

    play(act)


def test_the_last_piece_waits_for_all_before_it_and_is_waited_for_by_all_after_it() -> None:
    async def act(scene: Scene) -> None:
        scene.errands.do("job", "one", scene.work("a"))
        scene.errands.do("other", "one", scene.work("x"))
        scene.errands.do_last("job", scene.work("last"))
        scene.errands.do("job", "two", scene.work("b"))
        await scene.settle()
        assert scene.done == ["a began", "x began"]
        scene.gates["a"].set()
        await scene.settle()
        assert scene.done[-1] == "last began"
        scene.gates["last"].set()
        await scene.settle()
        assert scene.done[-1] == "b began"

    play(act)


def test_lanes_can_be_cancelled_by_name() -> None:
    async def act(scene: Scene) -> None:
        kept = scene.errands.do("job", "instance/a", scene.work("a"))
        dropped = scene.errands.do("job", "code", scene.work("b"))
        scene.errands.cancel("job", lambda lane: lane == "code")
        await asyncio.wait([dropped])
        assert dropped.cancelled()
        assert not kept.done()

    play(act)


def test_a_piece_that_raises_is_logged_and_the_lane_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    async def act(scene: Scene) -> None:
        with caplog.at_level(logging.ERROR):
            scene.errands.do("job", "one", broken)
            scene.errands.do("job", "one", scene.work("a"))
            await scene.settle()
        assert scene.done == ["a began"]
        assert "ZeroDivisionError" in caplog.text

    play(act)
