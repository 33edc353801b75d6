"""HTTP to the servers of a store, with nothing but the standard library.

A request goes to one server after the other, with growing pauses, until one answers or patience
ends. It may therefore arrive more than once, so callers only make requests that can be repeated.
Connections are kept open between requests, and each is one caller's at a time. Closing shuts those
in use too, so that a blocked reader wakes at once.
"""

import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

from midflight.backoff import pauses
from midflight.errors import StoreError, StoreUnavailable
from midflight.store.etcd_address import Endpoint

Json = dict[str, Any]
Connection = http.client.HTTPConnection
T = TypeVar("T")

# An etcd member that has lost its leader says nothing for longer than an election takes (a second
# or two), so it pays to ask again; a slow server gets more time in each round.
_FIRST_TIMEOUT = 2.0
_AGAIN = 0.05  # seconds


class Refused(StoreError):
    """A server answered, and the answer was no."""

    passing = False  # asking again can help
    may_settle = False  # it can help for a while, with a server that was just started


class HttpClient:
    def __init__(
        self,
        where: object,
        endpoints: Sequence[Endpoint],
        tls: ssl.SSLContext | None,
        patience: float,
        authority: str,
    ) -> None:
        """`where`: what messages call the servers; `authority`: what to do about one's own.

        Without `tls` it is plain http.
        """
        self.where = where
        self._authority = authority
        self.patience = patience
        self.troubles = 0  # how often a request had to be made again
        self._endpoints = endpoints
        self._connections = _Connections(tls)
        self._first = 0  # the endpoint that answered last
        self._closed = threading.Event()

    def rest(self, seconds: float) -> None:
        """Does nothing for a while, or until it is closed."""
        self._closed.wait(max(0.0, seconds))

    def close(self) -> None:
        self._closed.set()
        self._connections.close()

    def persist(self, attempt: Callable[[Connection], T], settling: float = 0.0) -> T:
        """What `attempt` returns when it succeeds; or Refused, or StoreUnavailable.

        For `settling` seconds a refusal that may settle is no answer.
        """
        began = time.monotonic()
        deadline = began + self.patience
        pause = pauses(0.02, 1.0, random.uniform)
        first = self._first
        for tries in count():
            rounds, tried = divmod(tries, len(self._endpoints))
            if rounds and not tried:
                self.rest(min(next(pause), deadline - time.monotonic()))
            timeout = min((1 + rounds) * _FIRST_TIMEOUT, deadline - time.monotonic())
            try:
                return self._attempt(attempt, first + tries, max(0.1, timeout))
            except ssl.SSLCertVerificationError as error:
                raise StoreError(
                    f"{self.where}: its certificate is not trusted ({error.verify_message}); "
                    f"{self._authority}"
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
        hint = "check that it runs and can be reached from here"
        if isinstance(trouble, ssl.SSLError):
            hint += f"; {self._authority}"
        raise StoreUnavailable(
            f"{self.where}: no answer within {self.patience:g} s (last: {_told(trouble)}); {hint}"
        ) from trouble

    def _attempt(self, attempt: Callable[[Connection], T], number: int, timeout: float) -> T:
        if self._closed.is_set():
            raise StoreError(f"{self.where}: this store is closed")
        endpoint = self._endpoints[number % len(self._endpoints)]
        with self._connections.borrow(endpoint, timeout) as connection:
            try:
                answer = attempt(connection)
            except Refused as error:
                refusal = error  # that was an answer: the connection is good for more
            else:
                self._first = number
                return answer
        raise refusal

    @contextmanager
    def stream(
        self, connection: Connection, response: http.client.HTTPResponse, until: float
    ) -> Iterator[Callable[[], Json]]:
        """Gives what reads the next line of an answer that goes on.

        It reads {} when `until` (monotonic) has come, and when the stream is broken: whoever waits
        looks again, and meets the trouble there.
        """

        def hear() -> Json:
            left = until - time.monotonic()
            if left <= 0 or self._closed.is_set():
                return {}
            connection.sock.settimeout(left)
            try:
                return decode(response.readline())
            except (OSError, http.client.HTTPException):
                return {}

        try:
            yield hear
        finally:
            response.close()
            connection.close()  # the stream goes on, so nothing else can be asked on it

    def pause(self, until: float) -> None:
        """Before a stream that told nothing is begun anew: looking again is no busy loop."""
        self.rest(min(_AGAIN, until - time.monotonic()))


class _Connections:
    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: defaultdict[Endpoint, list[Connection]] = defaultdict(list)
        self._busy: set[Connection] = set()

    @contextmanager
    def borrow(self, endpoint: Endpoint, timeout: float) -> Iterator[Connection]:
        connection = self._take(endpoint)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            yield connection
        except BaseException:
            connection.close()
            self._close_idle()  # what broke one has as a rule broken all
            raise
        else:
            with self._lock:
                self._idle[endpoint].append(connection)
        finally:
            with self._lock:
                self._busy.discard(connection)

    def close(self) -> None:
        self._close_idle()
        with self._lock:
            for connection in self._busy:
                _shut(connection)

    def _take(self, endpoint: Endpoint) -> Connection:
        with self._lock:
            idle = self._idle[endpoint]
            connection = idle.pop() if idle else self._new(endpoint)
            self._busy.add(connection)
            return connection

    def _new(self, endpoint: Endpoint) -> Connection:
        if self._tls is None:
            return Connection(endpoint.host, endpoint.port)
        return http.client.HTTPSConnection(endpoint.host, endpoint.port, context=self._tls)

    def _close_idle(self) -> None:
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()


def _shut(connection: Connection) -> None:
    if connection.sock is None:
        return
    try:
        # Not SSLSocket's own: it pulls the session away from under the reader.
        socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
    except OSError:
        return  # it was closed already


def decode(text: bytes) -> Json:
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise http.client.HTTPException("an answer that is not JSON") from error
    if not isinstance(answer, dict):
        raise http.client.HTTPException("an answer that is not JSON object")
    return answer


def _told(trouble: Exception) -> str:
    if isinstance(trouble, OSError) and trouble.strerror:
        return trouble.strerror
    return str(trouble) or type(trouble).__name__
