"""Who asked this server for what, and with what outcome: one line of JSON for each request.

Only requests that change something are noted, those that are refused too. Who it was is the
kernel's word, which the connection brings along as its client (`http_server.py`). The file is this
user's alone and bounded: one older one is kept. A line that cannot be written is left out; the
request does not fail for it.
"""

import json
import logging
import pwd
import time
from collections.abc import Awaitable, Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from midflight.controller.views import time_text
from midflight.server.folder import AUDIT

MOST_BYTES = 16 << 20
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
    _write(user, process, {"what": "connect", "about": "", "outcome": "refused", "reason": _OTHER})


def _note(request: Request, response: Response) -> None:
    where, refused = request.path_params, response.status_code >= 400
    path = "/".join(where[part] for part in ("namespace", "name") if part in where)
    said = {
        "what": f"{request.method} {request.scope['path']}",
        "about": getattr(request.state, "job", path),  # a job or a node
        "outcome": "refused" if refused else "done",
        "reason": json.loads(bytes(response.body))["error"] if refused and response.body else "",
    }
    if (client := request.client) is None:
        _write(None, None, said)
    else:
        _write(int(client.host), client.port, said)


def _write(user: int | None, process: int | None, said: dict[str, str]) -> None:
    who = {"user": "" if user is None else _name(user), "uid": user, "pid": process}
    log.info("%s", json.dumps({"at": time_text(time.time()), **who, **said}))


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return ""
