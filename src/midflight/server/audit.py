"""Who asked this server for what, and with what outcome: one line of JSON for each request.

Only requests that change something are noted, those that are refused too. Who it was is the
kernel's word, which the connection brings along as its client (`http_server.py`). The file is this
user's alone and bounded: one older one is kept. A line that cannot be written is left out; the
request does not fail for it.
"""

import json
import logging
import time
from collections.abc import Awaitable, Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from midflight.coordinator.audit import known
from midflight.protocol.audit import AUDIT, LOCAL, MOST_BYTES, Caller, Entry, line

_OTHER = "another user's connection"

log = logging.getLogger("midflight.audit")
log.propagate = False
log.addHandler(logging.NullHandler())  # without a file nothing is noted

Work = Callable[[Request], Awaitable[Response]]


def keep_in(home: Path) -> None:
    """From now on. The server's umask sees to it that nobody else can read the file."""
    handler = RotatingFileHandler(
        home / AUDIT, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8", delay=True
    )
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def audited(work: Work) -> Work:
    async def answer(request: Request) -> Response:
        response = await work(request)
        if request.method not in ("GET", "HEAD"):
            _note(request, response)
        return response

    return answer


def refuse(user: int, process: int) -> None:
    """A connection of another user."""
    _write(known(user, process), Entry("connect", "", done=False, reason=_OTHER))


def _note(request: Request, response: Response) -> None:
    where, refused = request.path_params, response.status_code >= 400
    path = "/".join(where[part] for part in ("namespace", "name") if part in where)
    entry = Entry(
        what=f"{request.method} {request.scope['path']}",
        about=getattr(request.state, "job", path),  # a job or a node
        done=not refused,
        reason=json.loads(bytes(response.body))["error"] if refused and response.body else "",
    )
    client = request.client
    _write(Caller("") if client is None else known(int(client.host), client.port), entry)


def _write(caller: Caller, entry: Entry) -> None:
    log.info("%s", line(time.time(), caller, LOCAL, entry))
