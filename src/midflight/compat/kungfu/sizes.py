"""Another size, asked for by a script: who is asked, and how all workers wait for it together.

Where there is a config store, its cluster is given the new size, and the launcher that follows the
store does the rest. Otherwise the coordinator is asked. Several members may ask at once: whoever
comes later finds that it is so already. At the next boundary all members learn that somebody has
asked, and stay there until the size is another one, or nobody waits for an answer any more.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from midflight.compat.kungfu.assignment import PATIENCE
from midflight.compat.kungfu.config import (
    CONFIG_SERVER,
    TOKEN_FILE,
    ConfigStoreClient,
    Outdated,
)
from midflight.compat.kungfu.peer import Peer
from midflight.compat.kungfu.schedule import check_size
from midflight.coordinator.client import CoordinatorClient
from midflight.errors import MidflightError, Refused
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import ResizeRequested
from midflight.protocol.wire import dial
from midflight.rundir import read_token

PACE = 0.02  # seconds between two looks at a change that all members wait for
LONGEST = 300.0  # seconds after which a change that nobody has refused is not waited for
_TRIES = 20  # of a compare-and-set that others win


class SizeRequest:
    """One member's wish for a size. In the store it is written at once; the coordinator's answer
    comes after the change, so a thread waits for it."""

    def __init__(self, env: WorkerEnv, size: int, environ: Mapping[str, str] = os.environ) -> None:
        self.size = size
        self.refusal = ""  # why it will not happen
        self._answered = False
        self._deadline = time.monotonic() + LONGEST
        if environ.get(CONFIG_SERVER):
            self._try(partial(write_size, size, environ))
        else:
            ask = partial(self._ask, env)
            threading.Thread(target=ask, name="kungfu-size", daemon=True).start()

    def is_open(self, size: int) -> bool:
        """Whether the job, which has this size now, is still waited for."""
        if time.monotonic() > self._deadline and not self.refusal:
            self.refusal = f"it did not happen within {LONGEST:g} s"
        return not self._answered and not self.refusal and size != self.size

    def _ask(self, env: WorkerEnv) -> None:
        self._try(partial(_ask_coordinator, env, self.size))
        self._answered = True

    def _try(self, ask: partial[None]) -> None:
        try:
            ask()
        except MidflightError as error:
            self.refusal = str(error) or "nobody answered in time"


def resize(at: Peer, size: int) -> tuple[bool, bool]:
    """(changed, detached). Every worker calls it at the same place; rank 0 asks for the size."""
    check_size(size)
    if not at.detached and at.rank == 0 and at.size != size:
        propose(at, size)
    return follow(at)


def propose(at: Peer, size: int) -> None:
    """Ask for a size; the next boundary waits for it."""
    check_size(size)
    if not at.alone and not at.detached:
        at.request = SizeRequest(at.environment, size)


def follow(at: Peer) -> tuple[bool, bool]:
    """(changed, detached), after a change that somebody has asked for has been made or refused."""
    while True:
        changed, detached = at.boundary()
        if changed or detached or not at.somebody_asks:
            break
        time.sleep(PACE)
    request = at.request
    if request is not None and not request.is_open(at.size):
        at.request = None
        if request.refusal:
            line = f"kungfu: not resized to {request.size}: {request.refusal}"
            print(line, file=sys.stderr, flush=True)
    return changed, detached


def write_size(size: int, environ: Mapping[str, str] = os.environ) -> None:
    """Give the cluster in the store that many workers."""
    client = ConfigStoreClient(environ[CONFIG_SERVER], environ.get(TOKEN_FILE), timeout=5.0)
    for _ in range(_TRIES):
        found = client.get()
        if found is None:
            raise Refused("the config store holds no cluster that could be resized")
        if len(found.cluster.workers) == size:
            return
        try:
            client.put(found.cluster.resized(size), found.etag)
        except Outdated:
            continue
        else:
            return
    raise Refused(f"the config store was changed by others {_TRIES} times in a row")


def _ask_coordinator(env: WorkerEnv, size: int) -> None:
    secret = read_token(Path(env.token_file))
    call = partial(dial, env.coordinator, "client", f"{env.member}-asks", secret)
    request = ResizeRequested(size, 0, 0, (), PATIENCE)
    ended = asyncio.run(CoordinatorClient(call).resize(request))
    if not ended.ok:
        raise Refused(ended.detail)
