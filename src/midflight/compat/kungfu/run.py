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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from midflight import atomic_file, shims
from midflight.compat.kungfu.cluster import make
from midflight.compat.kungfu.config import (
    CONFIG_SERVER,
    TOKEN_FILE,
    ConfigStoreClient,
    Followed,
    Outdated,
    Stored,
)
from midflight.compat.kungfu.config_store import FOLLOWED_SECONDS, ConfigServer
from midflight.compat.kungfu.debug_server import DebugServer
from midflight.compat.kungfu.follower import Follower
from midflight.compat.kungfu.run_flags import ROOM, RunFlags, read
from midflight.console import exit_code_of, say
from midflight.errors import UsageError
from midflight.home import home, make_private
from midflight.protocol.dialect import Dialect
from midflight.run.claim import claim
from midflight.run.hosted import JOB_DIR
from midflight.run.hosts import Hosts
from midflight.run.interrupts import handled
from midflight.run.options import Given, check
from midflight.run.supervise import Supervisor
from midflight.rundir import read_token

SERVER_SECONDS = 60.0  # for a config server that is still starting
_LOOK_SECONDS = 0.2
START_SECONDS = 60.0
_SOON_BACK = (1.0, 60.0)  # seconds for which a host that lost a worker is avoided
_NEVER = 86400.0  # the same, for a job of fixed size: nobody comes for the one that is lost


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(words: Sequence[str]) -> int:
    flags = read(words)
    for note in flags.notes:
        say(note)
    environ = {**os.environ, **shims.environment(os.environ)}
    time.sleep(flags.delay)
    with _builtin(flags, home(environ)) as flags, _limit(flags.timeout):
        return _follow(flags, environ) if flags.store else _launch(flags, environ)


@contextlib.contextmanager
def _builtin(flags: RunFlags, folder: Path) -> Iterator[RunFlags]:
    """Serves the store that the flags ask for, to whoever can read its token: this user."""
    if not flags.builtin_port:
        yield flags
        return
    own = folder / f"kungfu-{flags.builtin_port}.token"
    token_file = Path(flags.token_file) if flags.token_file else own
    if token_file == own:
        _make_token(own)
    with ConfigServer(port=flags.builtin_port, token=read_token(token_file)) as server:
        server.start()
        say(f"config server at {server.url}; {token_file} holds its token")
        try:
            yield replace(flags, token_file=str(token_file)) if flags.store == server.url else flags
        finally:
            server.shutdown()
            own.unlink(missing_ok=True)


def _make_token(path: Path) -> None:
    try:
        make_private(path.parent)
        atomic_file.write(path, secrets.token_hex(32).encode() + b"\n")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; name a file by -config-token-file"
        ) from None


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


def given(flags: RunFlags, np: int, hosts: Hosts | None, name: str | None) -> Given:
    """The run that the flags mean. Pure.

    Without -w a lost worker is not replaced, and a script that does not call KungFu ends with its
    first failure.
    """
    found = Given(
        command=flags.command,
        name=name,
        np=np,
        min_np=1,
        hosts=hosts,
        start_timeout=START_SECONDS,
        cooldown=_SOON_BACK,
        warm=flags.warm,
        output_dir=flags.logdir or None,
        environment=_variables(flags),
        dialect=Dialect(by_rank=True),
    )
    if flags.watch:
        return found
    return replace(
        found,
        max_np=np,
        cooldown=(_NEVER, _NEVER),
        hang_timeout=_NEVER,  # no boundaries, so no progress to look at
        dialect=Dialect(max_restarts=0, by_rank=True),
    )


def _variables(flags: RunFlags) -> dict[str, str]:
    """What workers find in their environment."""
    found = {
        "KUNGFU_ALLREDUCE_STRATEGY": flags.strategy,
        CONFIG_SERVER: flags.store,
        TOKEN_FILE: flags.token_file,
        "KUNGFU_ELASTIC_MODE": flags.elastic_mode,
    }
    return {name: value for name, value in found.items() if value}


def _launch(flags: RunFlags, environ: Mapping[str, str]) -> int:
    """Without a store: the hosts are those of -H, or those of the job that this is in."""
    hosts = flags.hosts or {"127.0.0.1": max(flags.np, ROOM if flags.watch else 0)}
    make(hosts, flags.np)  # refuses what does not fit
    in_job = JOB_DIR in environ
    name = flags.name or (None if in_job else _any_name())  # a job's run has the job's name
    wanted = given(flags, flags.np, None if in_job and not flags.hosts else hosts, name)
    options = check(wanted, environ)
    return _kept(flags, asyncio.run(Supervisor(options, claim(options)).run()))


def _any_name() -> str:
    return f"kungfu-{secrets.token_hex(3)}"


# --- with a store ---------------------------------------------------------------------------


def _follow(flags: RunFlags, environ: Mapping[str, str]) -> int:
    client = ConfigStoreClient(flags.store, flags.token_file or None, runner=secrets.token_hex(8))
    first = _first(flags, client)
    wanted = given(flags, len(first.cluster.workers), None, flags.name or _any_name())
    alone = {name: value for name, value in environ.items() if name != JOB_DIR}
    options = replace(check(wanted, alone), hosts={})  # the store's are meant, whoever runs this
    follower = Follower(client, first, options.folder)
    supervisor = Supervisor(options, claim(options), follower)
    with DebugServer(flags.debug_port, lambda: follower.stages):
        code = asyncio.run(supervisor.run())
        return _kept(flags, 0 if follower.cleared else code)


def _first(flags: RunFlags, client: ConfigStoreClient) -> Stored:
    """The cluster to begin with: the store's, or else the one that the flags describe."""
    visitor = ConfigStoreClient(flags.store, flags.token_file or None)  # follows nothing yet
    visitor.wait_server(SERVER_SECONDS)
    while True:
        found = visitor.get()
        if found is not None and found.cluster.workers:
            return _followed(client) or found
        if found is not None and not flags.wait_for_store:
            raise UsageError("the config store names no workers; put some, or reset it")
        if not flags.wait_for_store:
            hosts = flags.hosts or {"127.0.0.1": flags.np}
            with contextlib.suppress(Outdated):  # somebody else was faster
                client.put(make(hosts, flags.np, flags.first_port), absent=True)
        else:
            time.sleep(_LOOK_SECONDS)


def _followed(client: ConfigStoreClient) -> Stored | None:
    """What is there, from now on followed by this launcher; a former one may have just ended."""
    deadline = time.monotonic() + FOLLOWED_SECONDS + 1.0
    while True:
        try:
            return client.get()
        except Followed:
            if time.monotonic() >= deadline:
                raise UsageError(
                    f"another kungfu-run follows {client.url}, and starts the workers of all its "
                    "hosts; start one kungfu-run only, and on other machines the `midflight agent` "
                    "line that it prints"
                ) from None
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
