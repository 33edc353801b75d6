"""Between HTTP and the rest: reading a body, and turning an error into an answer.

`docs/api.md` has the kinds. Whatever is not one of Midflight's own errors is a bug: the caller
learns only that, the log has the rest.
"""

import json
import logging
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from midflight.errors import (
    Exists,
    MidflightError,
    NotFound,
    ProtocolError,
    Refused,
    StoreError,
    TimedOut,
    Unreachable,
    UsageError,
)
from midflight.protocol import codec
from midflight.protocol.views import ErrorView

LARGEST_BODY = 1 << 20  # bytes

log = logging.getLogger("midflight.server")

# The first that fits, so the narrow ones come first.
KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (UsageError, 400, "usage"),
    (ProtocolError, 400, "usage"),
    (Exists, 409, "conflict"),
    (NotFound, 404, "not-found"),
    (Refused, 409, "refused"),
    (TimedOut, 504, "timeout"),
    (Unreachable, 503, "unavailable"),
    (StoreError, 503, "unavailable"),
)


class CallerGone(Exception):
    """Nobody reads the answer any more."""


async def read_json(request: Request) -> object:
    """The body, `{}` if there is none."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST_BODY:
            raise UsageError(f"wanted a body of at most {LARGEST_BODY} bytes, got more")
    value = codec.loads(bytes(data)) if data else {}
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can name half of a character, and no answer can repeat it
        raise UsageError("wanted text in a body, got half of a character") from None
    return value


def error_answer(error: Exception) -> Response:
    for kind, status, name in KINDS:
        if isinstance(error, kind):
            return _error(status, name, str(error))
    if isinstance(error, MidflightError):
        return _error(500, "internal", str(error))
    return _error(500, "internal", "a mistake of the server's own; server.log says more")


def http_error(request: Request, error: Exception) -> Response:
    """What starlette refuses by itself: an unknown path, or a method that a path does not have."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        text = f"nothing is at {request.scope['path']}; see /api/v1/openapi.json"
        return _error(404, "not-found", text)
    text = f"{request.method} {request.scope['path']}: {error.detail}"
    return _error(error.status_code, "usage", text)


def guarded(
    work: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await work(request)
        except (CallerGone, ClientDisconnect):
            return Response(status_code=499)  # nobody reads it
        except MidflightError as error:
            return error_answer(error)
        except Exception as error:  # a bug; the server goes on
            log.exception("a bug: %s %s failed", request.method, request.scope["path"])
            return error_answer(error)

    return answer


def _error(status: int, kind: str, text: str) -> Response:
    body: ErrorView = {"error": text, "kind": kind}
    return JSONResponse(body, status)
