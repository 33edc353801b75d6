"""Asking for another size from inside a training process.

Where there is a config store, its cluster is given the new size, and the launcher that follows the
store does the rest. Otherwise the coordinator is asked. Either may be asked by several members at
once: whoever comes later finds that it is so already.
"""

import asyncio
import os
import threading
from collections.abc import Mapping
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from midflight.arguments import LARGEST
from midflight.compat.kungfu.config import (
    CONFIG_SERVER,
    TOKEN_FILE,
    ConfigStoreClient,
    Outdated,
)
from midflight.compat.kungfu.matching import PATIENCE
from midflight.coordinator.client import CoordinatorClient
from midflight.errors import MidflightError, Refused, UsageError
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import ResizeRequested
from midflight.protocol.wire import dial
from midflight.rundir import read_token

_TRIES = 20  # of a compare-and-set that others win


class Outcome(IntEnum):
    OPEN = 0
    DONE = 1  # with a store: written
    REFUSED = 2


def check_size(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise UsageError(f"a size is a whole number from 1 to {LARGEST}, got {size!r:.40}")
    return int(size)


def follows_store(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(environ.get(CONFIG_SERVER))


class Asking:
    """One wish for a size, carried through in a thread."""

    def __init__(self, env: WorkerEnv, size: int) -> None:
        self.outcome = Outcome.OPEN
        self.reason = ""
        self._env = env
        self._size = size
        self._thread = threading.Thread(target=self._run, name="kungfu-asking", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            if follows_store():
                write_size(self._size)
            else:
                _ask_coordinator(self._env, self._size)
            self.outcome = Outcome.DONE
        except MidflightError as error:
            self.reason = str(error) or "nobody answered in time"
            self.outcome = Outcome.REFUSED


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
