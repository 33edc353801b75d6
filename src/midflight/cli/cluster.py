"""The server, for the verbs that need one."""

import os
from typing import TYPE_CHECKING

from midflight.home import home
from midflight.server.starting import ensure, running

if TYPE_CHECKING:
    from midflight.client import Client


def connect() -> "Client":
    """The server of this user; it is started if there is none."""
    return ensure(home(os.environ))


def connect_if_running() -> "Client | None":
    return running(home(os.environ))
