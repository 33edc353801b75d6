"""`kungfu-run`: KungFu's launcher, as `midflight run` with hosts from -H or from a config store.

Without -w the job has one size, and goes on with fewer if a worker is lost. With -w it is elastic:
it follows the config store if there is one, and otherwise whatever its own workers ask for.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from midflight import shims
from midflight.compat.kungfu.cluster import make
from midflight.compat.kungfu.config import (
    CONFIG_SERVER,
    TOKEN_FILE,
    ConfigStoreClient,
    Outdated,
    Stored,
)
from midflight.compat.kungfu.config_store import ConfigServer
from midflight.compat.kungfu.debug_server import DebugServer
from midflight.compat.kungfu.following import Follower
from midflight.compat.kungfu.run_flags import ROOM, RunFlags, read
from midflight.console import exit_code_of, say
from midflight.errors import UsageError
from midflight.run.claim import claim
from midflight.run.hosted import JOB_DIR
from midflight.run.interrupts import handled
from midflight.run.options import Options, parse
from midflight.run.supervise import Supervisor
from midflight.rundir import read_token

SERVER_SECONDS = 60.0  # for a config server that is still starting
_LOOK_SECONDS = 0.2
_SOON_BACK = ("1", "60")  # seconds for which a host that lost a worker is avoided
_NEVER_BACK = "86400"  # the same, for a job of fixed size: nobody comes for the one that is lost


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(words: Sequence[str]) -> int:
    flags = read(words)
    for note in flags.notes:
        say(note)
    os.environ.update(shims.environment(os.environ))
    os.environ.update(_variables(flags))
    time.sleep(flags.delay)
    server = _builtin(flags)
    try:
        with _limit(flags.timeout):
            return _follow(flags) if flags.store else _launch(flags)
    finally:
        if server is not None:
            server.shutdown()
            server.server_close()


def _variables(flags: RunFlags) -> dict[str, str]:
    """What workers find in their environment."""
    found = {"KUNGFU_ALLREDUCE_STRATEGY": flags.strategy}
    if flags.store:
        found[CONFIG_SERVER] = flags.store
    if flags.token_file:
        found[TOKEN_FILE] = flags.token_file
    if flags.elastic_mode:
        found["KUNGFU_ELASTIC_MODE"] = flags.elastic_mode
    return found


def _builtin(flags: RunFlags) -> ConfigServer | None:
    if not flags.builtin_port:
        return None
    token = read_token(Path(flags.token_file)) if flags.token_file else None
    server = ConfigServer(port=flags.builtin_port, token=token)
    server.start()
    return server


class _limit:
    """Ends the launcher, in good order, when its time is over."""

    def __init__(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._end) if seconds else None

    def __enter__(self) -> None:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        say("the time given by -timeout is over")
        signal.raise_signal(signal.SIGTERM)


# --- without a store ------------------------------------------------------------------------


def _launch(flags: RunFlags) -> int:
    hosts = flags.hosts or {"127.0.0.1": max(flags.np, ROOM if flags.watch else 0)}
    make(hosts, flags.np)  # refuses what does not fit
    listed = ",".join(f"{host}:{slots}" for host, slots in hosts.items())
    where = ("-H", listed) if flags.hosts or JOB_DIR not in os.environ else ()
    options = _options(flags, flags.np, where)
    return _kept(flags, asyncio.run(Supervisor(options, claim(options)).run()))


def _options(flags: RunFlags, np: int, where: Sequence[str]) -> Options:
    arguments = ["-np", str(np), "--min-np", "1", "--start-timeout", "60", *where]
    if flags.watch:
        arguments += ["--cooldown", *_SOON_BACK]
    else:
        arguments += ["--max-np", str(np), "--cooldown", _NEVER_BACK, _NEVER_BACK]
        arguments += ["--hang-timeout", _NEVER_BACK]  # no boundaries, so no progress to look at
    if flags.warm:
        arguments += ["--warm", str(flags.warm)]
    if flags.logdir:
        arguments += ["--output-dir", flags.logdir]
    if flags.name or JOB_DIR not in os.environ:  # a job's run has the job's name, to be taken up
        arguments += ["--name", flags.name or f"kungfu-{secrets.token_hex(3)}"]
    return parse([*arguments, "--", *flags.command], dict(os.environ))


# --- with a store ---------------------------------------------------------------------------


def _follow(flags: RunFlags) -> int:
    client = ConfigStoreClient(flags.store, flags.token_file or None)
    client.wait_server(SERVER_SECONDS)
    first = _first(flags, client)
    os.environ.pop(JOB_DIR, None)  # the store's hosts are meant, whoever runs this
    options = replace(_options(flags, len(first.cluster.workers), ()), hosts={})
    claimed = claim(options)
    follower = Follower(client, first, options.folder, (claimed.store, options.spec.name))
    supervisor = Supervisor(options, claimed, follower)
    with DebugServer(flags.debug_port, lambda: follower.stages):
        code = asyncio.run(supervisor.run())
        return _kept(flags, 0 if follower.cleared else code)


def _first(flags: RunFlags, client: ConfigStoreClient) -> Stored:
    """The cluster to begin with: the store's, or else the one that the flags describe."""
    while True:
        found = client.get()
        if found is not None and found.cluster.workers:
            return found
        if found is not None and not flags.wait_for_store:
            raise UsageError("the config store names no workers; put some, or reset it")
        if not flags.wait_for_store:
            hosts = flags.hosts or {"127.0.0.1": flags.np}
            with contextlib.suppress(Outdated):  # somebody else was faster
                client.put(make(hosts, flags.np, flags.first_port), absent=True)
        else:
            time.sleep(_LOOK_SECONDS)


def _kept(flags: RunFlags, code: int) -> int:
    """With -k: stay until somebody ends this process."""
    if flags.keep and code == 0:
        say("the workers have finished; -k keeps this process until it is ended")
        ended: list[int] = []  # no Event: its lock may be held by what a signal interrupts
        with handled((signal.SIGINT, signal.SIGTERM), lambda number, _: ended.append(number)):
            while not ended:
                time.sleep(_LOOK_SECONDS)
    return code


if __name__ == "__main__":
    sys.exit(main())
