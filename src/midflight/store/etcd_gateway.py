"""Talks to etcd v3 through its JSON gateway, with nothing but the standard library.

Rides out a lost leader and a restarted server: a call goes to one endpoint after the other, with
growing pauses, until one answers or patience ends. It may therefore reach etcd more than once, so
callers only make calls that can be repeated. Knows connections, tokens and errors; knows nothing of
keys and values.
"""

import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from midflight.backoff import pauses
from midflight.errors import StoreError, StoreUnavailable
from midflight.store.etcd_address import EtcdAddress
from midflight.store.etcd_connections import Connections

Json = dict[str, Any]
T = TypeVar("T")

NOT_FOUND = 5  # gRPC's numbers
_DENIED = 7
_UNAUTHENTICATED = 16

# A member that has lost its leader says nothing for longer than an election takes (a second or
# two), so it pays to ask again; a slow one gets more time in each round.
_FIRST_TIMEOUT = 2.0


class Refused(StoreError):
    """etcd answered, and the answer was no."""

    def __init__(self, address: EtcdAddress, status: int, code: int, reason: str) -> None:
        super().__init__(f"{address}: refused ({reason})")
        self.code = code
        # Asking again can help: no leader yet, going down, overloaded.
        self.passing = status >= 500 or "too many requests" in reason
        self.token_is_stale = code == _UNAUTHENTICATED or "auth store is old" in reason


class Gateway:
    def __init__(self, address: EtcdAddress, patience: float) -> None:
        self.address = address
        self.patience = patience
        self._connections = Connections(address)
        self._endpoint = 0  # the one that answered last
        self._token: str | None = None
        self._closed = threading.Event()

    def call(self, path: str, body: Json) -> Json:
        """One question, one answer. Raises Refused, or StoreUnavailable."""

        def ask(connection: http.client.HTTPConnection) -> Json:
            response = self._post(connection, path, body, self._credentials(connection))
            return self._decode(response.read())

        return self._persist(ask)

    def await_event(self, create: Json, deadline: float) -> None:
        """Returns when a watch has something to tell, breaks, or `deadline` (monotonic) comes."""

        def listen(connection: http.client.HTTPConnection) -> None:
            # Without a leader the watch shall break, not fall silent.
            headers = self._credentials(connection) | {"Grpc-Metadata-hasleader": "true"}
            response = self._post(connection, "/v3/watch", {"create_request": create}, headers)
            self._decode(response.readline())  # "created": from here on no event is missed
            try:
                self._hear_event(connection, response, deadline)
            finally:
                response.close()
                connection.close()  # the stream goes on, so nothing else can be asked on it

        self._persist(listen)

    def close(self) -> None:
        self._closed.set()
        self._connections.close()

    def _hear_event(
        self,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        deadline: float,
    ) -> None:
        left = deadline - time.monotonic()
        if left <= 0 or self._closed.is_set():
            return
        connection.sock.settimeout(left)
        try:
            heard = self._decode(response.readline())["result"]
        except TimeoutError:
            return
        except (OSError, http.client.HTTPException, Refused):
            heard = {}  # it broke: whoever waits looks again, and meets the trouble there
        if "permission denied" in heard.get("cancel_reason", ""):
            raise Refused(self.address, 403, _DENIED, heard["cancel_reason"])
        if "events" not in heard:
            self._closed.wait(min(0.05, left))  # so that looking again is no busy loop

    def _persist(self, attempt: Callable[[http.client.HTTPConnection], T]) -> T:
        deadline = time.monotonic() + self.patience
        pause = pauses(0.02, 1.0, random.uniform)
        first = self._endpoint
        for tries in count():
            rounds, tried = divmod(tries, len(self.address.endpoints))
            if rounds and not tried:
                self._closed.wait(min(next(pause), max(0.0, deadline - time.monotonic())))
            timeout = min((1 + rounds) * _FIRST_TIMEOUT, deadline - time.monotonic())
            try:
                return self._attempt(attempt, first + tries, max(0.1, timeout))
            except ssl.SSLCertVerificationError as error:
                raise StoreError(
                    f"{self.address}: its certificate is not trusted ({error.verify_message});"
                    " name the authority with ?ca=FILE"
                ) from error
            except Refused as error:
                if error.token_is_stale and self.address.user:
                    self._token = None
                elif not error.passing:
                    raise
                trouble: Exception = error
            except (OSError, http.client.HTTPException) as error:
                trouble = error
            if time.monotonic() >= deadline:
                break
        hint = "check that it runs and can be reached from here"
        if isinstance(trouble, ssl.SSLError):
            hint += ", and name a certificate with ?cert=FILE&key=FILE if it asks for one"
        raise StoreUnavailable(
            f"{self.address}: no answer within {self.patience:g} s (last: {_in_words(trouble)});"
            f" {hint}"
        ) from trouble

    def _attempt(
        self,
        attempt: Callable[[http.client.HTTPConnection], T],
        number: int,
        timeout: float,
    ) -> T:
        if self._closed.is_set():
            raise StoreError(f"{self.address}: this store is closed")
        endpoint = self.address.endpoints[number % len(self.address.endpoints)]
        with self._connections.borrow(endpoint, timeout) as connection:
            answer = attempt(connection)
        self._endpoint = number
        return answer

    def _credentials(self, connection: http.client.HTTPConnection) -> dict[str, str]:
        if self.address.user is None:
            return {}
        token = self._token
        if token is None:
            body = {"name": self.address.user, "password": self.address.password}
            response = self._post(connection, "/v3/auth/authenticate", body, {})
            self._token = token = str(self._decode(response.read())["token"])
        return {"Authorization": token}

    def _post(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        body: Json,
        headers: dict[str, str],
    ) -> http.client.HTTPResponse:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        if response.status == 200:
            return response
        text = response.read().decode(errors="replace").strip()
        try:
            told = json.loads(text)
            code, reason = int(told["code"]), str(told["message"])
        except (ValueError, TypeError, KeyError):  # not from etcd itself
            code, reason = 0, f"{response.status} {text[:100]}; wanted an etcd with its v3 gateway"
        raise Refused(self.address, response.status, code, reason)

    def _decode(self, text: bytes) -> Json:
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise http.client.HTTPException("an answer that is no JSON") from error
        if not isinstance(answer, dict):
            raise http.client.HTTPException("an answer that is no JSON object")
        if "error" in answer:  # a stream's way to say no
            told = answer["error"]
            raise Refused(
                self.address, told["http_code"], told.get("grpc_code", 0), told["message"]
            )
        return answer


def _in_words(trouble: Exception) -> str:
    if isinstance(trouble, OSError) and trouble.strerror:
        return trouble.strerror
    return str(trouble) or type(trouble).__name__
