"""The operator's health port, and clients that hold it open."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from midflight.kubernetes.operator.health import serve
from midflight.monitoring import page_server

Ask = Callable[[bytes], Awaitable[bytes]]


def run(story: Callable[[tuple[str, int]], Awaitable[None]], ready: bool = True) -> None:
    async def play() -> None:
        listen = socket.create_server(("127.0.0.1", 0))
        task = asyncio.create_task(serve(listen, lambda: "midflight_pods 3\n", lambda: ready))
        try:
            async with asyncio.timeout(20):
                await story(listen.getsockname())
        finally:
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(play())


async def ask(where: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*where)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (get("/healthz"), b"200", b"ok\n"),
        (get("/readyz"), b"200", b"ok\n"),
        (get("/metrics"), b"200", b"midflight_pods 3\n"),
        (get("/metrics?x=1"), b"200", b"midflight_pods 3\n"),
        (get("/nothing"), b"404", b"not found\n"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"405", b""),
        (b"nonsense\r\n\r\n", b"400", b""),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", b"400", b""),
    ],
)
def test_a_request_has_its_answer(request_: bytes, status: bytes, body: bytes) -> None:
    async def story(where: tuple[str, int]) -> None:
        answer = await ask(where, request_)
        assert answer.startswith(b"HTTP/1.1 " + status) and body in answer

    run(story)


def test_an_operator_that_knows_nothing_yet_is_not_ready() -> None:
    async def story(where: tuple[str, int]) -> None:
        assert (await ask(where, get("/readyz"))).startswith(b"HTTP/1.1 503")

    run(story, ready=False)


def test_half_open_requests_do_not_fail_a_probe() -> None:
    async def story(where: tuple[str, int]) -> None:
        half = [await asyncio.open_connection(*where) for _ in range(300)]
        for _, writer in half:
            writer.write(b"GET /healthz HT")
        answer = b""
        while not answer.startswith(b"HTTP/1.1 200"):
            try:
                answer = await ask(where, get("/healthz"))
            except OSError:
                await asyncio.sleep(0.05)
        for _, writer in half:
            writer.close()

    run(story)


def test_a_request_that_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "HEADER_SECONDS", 0.1)

    async def story(where: tuple[str, int]) -> None:
        assert await ask(where, b"GET /healthz HT") == b""

    run(story)
