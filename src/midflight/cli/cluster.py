"""The server, for the verbs that need one."""

import os
from typing import TYPE_CHECKING

from midflight.server.starting import ensure, home_of, running

if TYPE_CHECKING:
    from midflight.client import Client


def connect() -> "Client":
    """The server of this user; it is started if there is none."""
    return ensure(home_of(os.environ))


def connect_if_running() -> "Client | None":
    return running(home_of(os.environ))
