"""`python -m midflight.server [--home DIR]`: one server, until it is told to end.

Everything that can refuse (the folder, the lock, the journal) is tried before the socket appears.
SIGTERM, SIGINT and `POST /stop` end it; the instances go on, and the next server adopts them, so
that an upgrade is a stop and a start. Exit code 3: another server has the folder.
"""

import argparse
import asyncio
import importlib
import logging
import os
import socket
import time
from collections.abc import Sequence
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import cast

import midflight
from midflight.arguments import Parser
from midflight.backends.crash_points import Passing, passing_from
from midflight.backends.local.interface import Machine
from midflight.backends.local.journal import Journal
from midflight.backends.local.place import LocalPlace
from midflight.backends.loop import Loop
from midflight.console import exit_code_of, say
from midflight.errors import UsageError
from midflight.home import home as users_home
from midflight.monitoring import page_server
from midflight.server import audit
from midflight.server.api import Api
from midflight.server.application import METRICS, application
from midflight.server.folder import (
    HELD,
    JOURNAL,
    LOG,
    SOCKET,
    Held,
    listen,
    make_home,
    sign,
    take_lock,
)
from midflight.server.http_server import Server
from midflight.server.metrics_port import MetricsPort, open_port
from midflight.server.metrics_routes import metrics_page
from midflight.server.waiters import Waiters

LOG_BYTES = 5_000_000
LOCAL = "midflight.backends.local.machine:LocalMachine"

log = logging.getLogger("midflight.server")


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    options = _parser().parse_args(argv)
    home = Path(options.home or users_home(os.environ)).absolute()
    passing = passing_from(os.environ)
    os.umask(0o077)
    make_home(home)
    try:
        lock = take_lock(home, options.lock)
        sign(lock)
    except Held as error:
        say(f"error: {error}")
        return HELD
    with lock:
        _log_to(home / LOG)
        audit.keep_in(home)
        journal = Journal(home / JOURNAL)
        machine = _machine(options.backend, home)
        port = open_port(home, os.environ)
        listener = listen(home)
        try:
            asyncio.run(_serve(home, LocalPlace(journal, machine), passing, listener, port))
        finally:
            (home / SOCKET).unlink(missing_ok=True)
    return 0


async def _serve(
    home: Path,
    place: LocalPlace,
    passing: Passing,
    listener: socket.socket,
    port: MetricsPort | None,
) -> None:
    waiters = Waiters()
    loop = Loop(place, passing=passing, changed=waiters.wake)
    api = Api(loop, place.machine, place.journal, waiters, home, time.time())
    server = Server(application(api), cut=waiters.close)
    api.stop, api.ending = server.end, server.ending
    await loop.start()
    log.info("version %s, process %d, serves %s", midflight.__version__, os.getpid(), home)
    scrapes = None if port is None else asyncio.create_task(_serve_metrics(api, port))
    await server.serve([listener])
    if scrapes is not None:
        scrapes.cancel()
        await asyncio.wait((scrapes,))
    waiters.close()
    await loop.close()
    log.info("process %d has ended; jobs keep running", os.getpid())


async def _serve_metrics(api: Api, port: MetricsPort) -> None:
    log.info("metrics on %s:%d", *port.listener.getsockname()[:2])
    pages = {METRICS: partial(metrics_page, api)}
    await page_server.serve(port.listener, pages, port.token)


def _machine(name: str, home: Path) -> Machine:
    module, _, factory = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"wanted --backend MODULE:FACTORY, got {name!r}: {error}") from None
    return cast(Machine, make(home))


def _log_to(path: Path) -> None:
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m midflight.server", description="Serves the jobs of one user on one machine."
    )
    parser.add_argument(
        "--home", metavar="DIR", help="its folder (default $MIDFLIGHT_HOME, or ~/.midflight)"
    )
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)  # held by who started it
    parser.add_argument("--backend", default=LOCAL, help=argparse.SUPPRESS)
    return parser
