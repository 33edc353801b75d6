"""Who is let through next, when one namespace has much to do and another has little."""

import asyncio

from midflight.kubernetes.api.fair_gate import FairGate


async def run(gate: FairGate, order: list[str], namespace: str, done: asyncio.Event) -> None:
    async with gate.turn(namespace):
        order.append(namespace)
        await done.wait()


def test_a_namespace_with_much_to_do_does_not_hold_up_another():
    async def check() -> None:
        gate, order, done = FairGate(at_once=4, share=2), list[str](), asyncio.Event()
        busy = [asyncio.create_task(run(gate, order, "busy", done)) for _ in range(100)]
        await asyncio.sleep(0)
        quiet = asyncio.create_task(run(gate, order, "quiet", done))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sorted(order) == ["busy", "busy", "quiet"]
        done.set()
        await asyncio.gather(quiet, *busy)
        assert order.count("busy") == 100

    asyncio.run(check())


def test_namespaces_that_wait_take_turns():
    async def check() -> None:
        gate, order, done = FairGate(at_once=1, share=1), list[str](), asyncio.Event()
        tasks = [asyncio.create_task(run(gate, order, n, done)) for n in ("a", "a", "a", "b", "c")]
        await asyncio.sleep(0)
        done.set()
        await asyncio.gather(*tasks)
        assert order == ["a", "a", "b", "c", "a"]

    asyncio.run(check())


def test_whoever_is_cancelled_leaves_its_place_to_others():
    async def check() -> None:
        gate, order, done = FairGate(at_once=1, share=1), list[str](), asyncio.Event()
        inside = asyncio.create_task(run(gate, order, "a", done))
        waits = asyncio.create_task(run(gate, order, "b", done))
        last = asyncio.create_task(run(gate, order, "c", done))
        await asyncio.sleep(0)
        for task in (waits, inside):
            task.cancel()
        done.set()
        await asyncio.wait_for(last, 10)
        assert order == ["a", "c"]

    asyncio.run(check())
