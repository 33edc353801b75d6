"""The coordinator as a process: reads its run folder, serves, ends with the job's exit code.

The folder holds the spec, the token and, once the socket is bound, the address. Started anew
after a death, it takes the port it had and the state from the store, and members and agents come
back by themselves. An error that nobody expected ends it like a kill: the launcher starts another.
"""

import argparse
import asyncio
import errno
import logging
import os
import signal
import socket
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from midflight import descriptors, terminal
from midflight.coordinator.admission import report_accept_errors
from midflight.coordinator.audit import AuditTrail
from midflight.coordinator.connections import Door
from midflight.coordinator.core import events
from midflight.coordinator.core.state import Phase, initial
from midflight.coordinator.exit_codes import CRASHED, REFUSED
from midflight.coordinator.flight_log import log_files, open_log
from midflight.coordinator.output import Printer
from midflight.coordinator.peers import Peers
from midflight.coordinator.saved_state import Saving
from midflight.coordinator.shell import Shell, now
from midflight.errors import MidflightError, SealBroken, UsageError
from midflight.protocol.wire import split_address
from midflight.rundir import RunDir
from midflight.store.interface import Store
from midflight.store.urls import open_store

# A port that a run had before may be in somebody's passing use: a peer that dials it while nobody
# listens can even be connected to itself.
REBIND_SECONDS = 15.0
STORE = "MIDFLIGHT_STORE"  # a URL may hold a password, and every user can see arguments
ACCEPTED_AT_ONCE = 16  # so many are taken from it before the loop does anything else
BACKLOG = 2048  # a thousand members may dial at once; one that does not fit waits for seconds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m midflight.coordinator")
    parser.add_argument("--run-dir", required=True, type=Path)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--store", default=os.environ.get(STORE), help=f"default: ${STORE}")
    parser.add_argument("--tls", action="store_true", help="encrypt all connections")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(argv)
    descriptors.raise_limit()
    logging.basicConfig(handlers=[logging.StreamHandler(terminal.ErrorStream())])  # asyncio's
    try:
        folder = RunDir(options.run_dir)
        if not options.store:
            raise UsageError(f"--store or ${STORE} wants the URL of the store")
        with open_store(options.store) as store:
            return asyncio.run(_run(options, folder, store))
    except MidflightError as error:
        terminal.say(f"error: {error}")
        return REFUSED if isinstance(error, UsageError | SealBroken) else CRASHED
    except Exception:  # noqa: BLE001 - shown here, and ridden out by the launcher
        terminal.err(traceback.format_exc().splitlines())
        return CRASHED


async def _run(options: argparse.Namespace, folder: RunDir, store: Store) -> int:
    spec = folder.read_spec()
    secret = folder.read_token()
    saving = Saving(store, spec.name, secret)
    state = saving.load(now()) or initial(spec, now())
    state = replace(state, spec=spec)  # what is started is what the launcher has written down
    if state.phase in (Phase.SUCCEEDED, Phase.FAILED):  # whoever starts anew has it forgotten first
        return 0 if state.phase is Phase.SUCCEEDED else state.exit_code or 1
    printer = Printer(spec, verbose=options.verbose)
    patience = REBIND_SECONDS if folder.read_address() is not None else 0.0
    listener = await _listen(*_where(options.listen, folder), patience)
    files = log_files(folder.flight_log)
    log = open_log(folder.flight_log, files, spec, now())
    shell = Shell(state, Peers(), saving, printer, log)
    trail = AuditTrail(spec.name, folder.audit)
    door = Door(shell, secret, printer, trail, tls=options.tls)
    server = await asyncio.start_server(
        door.serve, sock=listener, limit=1 << 17, backlog=ACCEPTED_AT_ONCE
    )
    listener.listen(BACKLOG)
    folder.write_address(_address(listener))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_accept_errors(door.refusals))
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        loop.add_signal_handler(number, _stop, shell, trail, code)
    try:
        return await run_until_over(shell)
    finally:
        server.close()
        printer.close()
        files.close()
        trail.close()


async def run_until_over(shell: Shell) -> int:
    """Tick and save until the job is over; its exit code."""
    loop = asyncio.get_running_loop()
    work = [loop.create_task(shell.tick()), loop.create_task(shell.save())]
    try:
        waiting: list[asyncio.Future[Any]] = [shell.over, *work]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a tick or a save that failed must not pass in silence
        return shell.over.result()
    finally:
        shell.retired = True  # that everybody is cut off now says nothing about them
        for task in work:
            task.cancel()


def _stop(shell: Shell, trail: AuditTrail, code: int) -> None:
    trail.stop_by_signal()
    shell.dispatch(events.StopAsked(now(), "interrupted", code))


def _where(listen: str, folder: RunDir) -> tuple[str, int]:
    """The address asked for; with port 0, the port this run had before, if it had one."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"--listen wants HOST:PORT, got {listen!r}")
    before = folder.read_address()
    if port == "0" and before is not None:
        return host, split_address(before)[1]
    return host, int(port)


async def _listen(host: str, port: int, patience: float) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setblocking(False)
    deadline = now() + patience
    while True:
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            if error.errno != errno.EADDRINUSE or now() >= deadline:
                listener.close()
                raise UsageError(
                    f"cannot listen on {host}:{port}: {error.strerror}; "
                    "choose another with --listen"
                ) from None
        await asyncio.sleep(0.1)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
