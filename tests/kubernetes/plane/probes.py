"""Readiness and liveness: a container is asked now and then how it is.

Over HTTP, by opening a port, or by a program run in it, as its manifest says. Probes go to the
pod's own address.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any

from tests.kubernetes.plane import spawning
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.container import Container
from tests.kubernetes.plane.spawning import Program, Streams


async def watch(container: Container, kind: str, ip: str, verdict: Callable[[bool], None]) -> None:
    """For ever: tells the verdict whenever the thresholds say so. `kind` is readinessProbe, say."""
    probe: Json = container.spec[kind]
    limits = {True: probe.get("successThreshold", 1), False: probe.get("failureThreshold", 3)}
    last, times = None, 0
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    while True:
        well = await _asked(container, probe, ip)
        times = times + 1 if well == last else 1
        last = well
        if times == limits[well]:
            verdict(well)
        await asyncio.sleep(probe.get("periodSeconds", 10))


async def _asked(container: Container, probe: Json, ip: str) -> bool:
    try:
        async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
            if "httpGet" in probe:
                return await _http(probe["httpGet"], _port(container, probe["httpGet"]), ip)
            if "tcpSocket" in probe:
                return await _tcp(probe["tcpSocket"], _port(container, probe["tcpSocket"]), ip)
            return await _exec(container, tuple(probe["exec"]["command"]))
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False


async def _http(said: Json, port: int, ip: str) -> bool:
    context = None
    if said.get("scheme") == "HTTPS":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(said.get("host", ip), port, ssl=context)
    try:
        path = said.get("path", "/")
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {ip}\r\nConnection: close\r\n\r\n".encode())
        status = (await reader.readuntil(b"\r\n")).split()[1]
        return 200 <= int(status) < 400
    finally:
        writer.close()


async def _tcp(said: Json, port: int, ip: str) -> bool:
    _, writer = await asyncio.open_connection(said.get("host", ip), port)
    writer.close()
    return True


async def _exec(container: Container, command: tuple[str, ...]) -> bool:
    if container.pid is None or container.program is None:
        return False
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        program = Program(command, container.program.env, container.program.cwd)
        pid = spawning.join(container.pid, program, Streams(nothing, nothing, nothing))
    finally:
        os.close(nothing)
    return await asyncio.shield(spawning.ended(pid)) == 0


def _port(container: Container, said: Json) -> int:
    """By number, or by the name that the container gives it."""
    wanted: Any = said["port"]
    for port in container.spec.get("ports", []):
        if port.get("name") == wanted:
            return int(port["containerPort"])
    return int(wanted)
