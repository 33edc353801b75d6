"""Talks to a Kubernetes API server about one ConfigMap, with nothing but the standard library.

Reads it, replaces it, waits until it changes. An API server that is away is ridden out with growing
pauses until patience ends; a request may therefore arrive twice, which does no harm: a replacement
names the version that it replaces. Where watching is not allowed, waiting is looking now and then.
"""

import http.client
import json
import math
import random
import ssl
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from midflight.backoff import pauses
from midflight.errors import StoreError, StoreUnavailable
from midflight.store.kubernetes_address import Json, KubernetesAddress

T = TypeVar("T")

CONFLICT = 409
_UNKNOWN, _FORBIDDEN, _MISSING = 401, 403, 404
_FIRST_TIMEOUT = 2.0  # seconds; more in each round, for one that is only slow
_SETTLING = 2.0  # seconds in which a server that was just started may refuse whom it will know
_LONGEST_WATCH = 60.0  # seconds; a line that was cut in silence is found out by then
_POLL = 0.5  # seconds between two looks of whoever may not watch
_WATCH_AGAIN = 60.0  # seconds after which it asks whether it may by now


class Refused(StoreError):
    """The API server answered, and the answer was no."""

    def __init__(self, address: KubernetesAddress, status: int, reason: str) -> None:
        super().__init__(f"{address}: {_in_words(status, reason)}")
        self.status = status
        self.passing = status >= 500 or status == 429
        self.may_settle = status in (_UNKNOWN, _FORBIDDEN)


class Gateway:
    def __init__(self, address: KubernetesAddress, patience: float) -> None:
        self.address = address
        self.patience = patience
        self.troubles = 0  # how often a request had to be made again
        self._server = address.server
        self._connections = self._server.connections()
        self._folder = f"{self._server.base}/api/v1/namespaces/{address.namespace}/configmaps"
        self._watch_from = 0.0  # when watching may be tried again
        self._closed = threading.Event()

    def read(self) -> Json:
        return self._persist(lambda line: self._ask(line, "GET", None))

    def replace(self, config_map: Json) -> Json:
        """What it is afterwards. Refused with CONFLICT if it is not the version named in it."""
        body = json.dumps(config_map, separators=(",", ":")).encode()
        return self._persist(lambda line: self._ask(line, "PUT", body))

    def await_change(self, version: str, deadline: float) -> None:
        """Returns when it may be another version, or when `deadline` (monotonic) comes."""
        if time.monotonic() >= self._watch_from:
            try:
                return self._persist(lambda line: self._listen(line, version, deadline), 0.0)
            except Refused as error:
                if error.status != _FORBIDDEN:
                    raise
                self._watch_from = time.monotonic() + _WATCH_AGAIN
        self.rest(min(_POLL, deadline - time.monotonic()))

    def rest(self, seconds: float) -> None:
        """Does nothing for a while, or until it is closed."""
        self._closed.wait(max(0.0, seconds))

    def close(self) -> None:
        self._closed.set()
        self._connections.close()

    # --- one try ------------------------------------------------------------------------------

    def _ask(self, line: http.client.HTTPConnection, verb: str, body: bytes | None) -> Json:
        response = self._send(line, verb, f"{self._folder}/{self.address.name}", body)
        return _decode(response.read())

    def _listen(self, line: http.client.HTTPConnection, version: str, deadline: float) -> None:
        """Without a version to start from, a watch begins with what there is now.

        So nothing is missed between the look before and this, however old that version is.
        """
        left = min(deadline - time.monotonic(), _LONGEST_WATCH)
        if left <= 0 or self._closed.is_set():
            return
        query = f"watch=1&timeoutSeconds={math.ceil(left)}"
        query += f"&fieldSelector=metadata.name%3D{self.address.name}"
        response = self._send(line, "GET", f"{self._folder}?{query}", None)
        until = time.monotonic() + left
        try:
            while self._hear(line, response, until) == version:
                continue
        finally:
            response.close()
            line.close()  # the stream goes on, so nothing else can be asked on it

    def _hear(
        self, line: http.client.HTTPConnection, response: http.client.HTTPResponse, until: float
    ) -> str | None:
        """The version that the next event tells of; None when it is time to look."""
        left = until - time.monotonic()
        if left <= 0 or self._closed.is_set():
            return None
        line.sock.settimeout(left)
        try:
            event = _decode(response.readline())
        except TimeoutError:
            return None
        except (OSError, http.client.HTTPException):
            event = {}  # it broke: whoever waits looks again, and meets the trouble there
        if event.get("type") in ("ADDED", "MODIFIED", "DELETED"):
            heard: str = event["object"]["metadata"]["resourceVersion"]
            return heard
        self.rest(min(0.05, left))  # so that looking again is no busy loop
        return None

    def _send(
        self, line: http.client.HTTPConnection, verb: str, path: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "midflight"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        line.request(verb, path, body, headers | self._server.login.headers())
        response = line.getresponse()
        if response.status == 200:
            return response
        raise Refused(self.address, response.status, _reason(response.read()))

    # --- many tries ---------------------------------------------------------------------------

    def _persist(
        self, attempt: Callable[[http.client.HTTPConnection], T], settling: float = _SETTLING
    ) -> T:
        began = time.monotonic()
        deadline = began + self.patience
        pause = pauses(0.02, 1.0, random.uniform)
        for tries in count(1):
            timeout = min(tries * _FIRST_TIMEOUT, deadline - time.monotonic())
            try:
                return self._attempt(attempt, max(0.1, timeout))
            except ssl.SSLCertVerificationError as error:
                raise StoreError(
                    f"{self.address}: its certificate is not trusted ({error.verify_message}); "
                    "check the certificate authority"
                ) from error
            except Refused as error:
                settles = error.may_settle and time.monotonic() - began < settling
                if not error.passing and not settles:
                    raise
                trouble: Exception = error
            except (OSError, http.client.HTTPException) as error:
                trouble = error
            self.troubles += 1
            if time.monotonic() >= deadline:
                break
            self.rest(min(next(pause), deadline - time.monotonic()))
        raise StoreUnavailable(
            f"{self.address}: no answer within {self.patience:g} s (last: {_told(trouble)}); "
            "check that the API server runs and can be reached from here"
        ) from trouble

    def _attempt(self, attempt: Callable[[http.client.HTTPConnection], T], timeout: float) -> T:
        if self._closed.is_set():
            raise StoreError(f"{self.address}: this store is closed")
        with self._connections.borrow(self._server.endpoint, timeout) as line:
            try:
                return attempt(line)
            except Refused as error:
                refusal = error  # that was an answer: the line is good for more
        raise refusal


def _decode(text: bytes) -> Json:
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise http.client.HTTPException("an answer that is no JSON") from error
    if not isinstance(answer, dict):
        raise http.client.HTTPException("an answer that is no JSON object")
    return answer


def _reason(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, TypeError, KeyError):  # not from an API server itself
        words = " ".join(text.decode(errors="replace").split())
        return f"{words[:100]}; wanted a Kubernetes API server"


def _in_words(status: int, reason: str) -> str:
    reason = " ".join(reason.split())
    match status:
        case 401:
            return f"the API server does not know this token or certificate ({reason})"
        case 403:
            return f"not allowed ({reason}); its role has to let it get, update and watch this one"
        case 404:
            return f"it is not there ({reason}); it is made with the job, and gone with it"
        case _:
            return f"refused ({status}: {reason})"


def _told(trouble: Exception) -> str:
    if isinstance(trouble, OSError) and trouble.strerror:
        return trouble.strerror
    return str(trouble) or type(trouble).__name__
