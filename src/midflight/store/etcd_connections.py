"""The HTTP connections to an etcd cluster: kept open between calls, closed from any thread.

A connection is one caller's at a time and goes back when the call went well. Closing shuts the
sockets of those in use too, so that a blocked reader wakes at once.
"""

import http.client
import socket
import ssl
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from midflight.errors import UsageError
from midflight.store.etcd_address import Endpoint, EtcdAddress, TlsFiles


class Connections:
    def __init__(self, address: EtcdAddress) -> None:
        self._tls = None if address.tls is None else _tls_context(address.tls)
        self._lock = threading.Lock()
        self._idle: defaultdict[Endpoint, list[http.client.HTTPConnection]] = defaultdict(list)
        self._busy: set[http.client.HTTPConnection] = set()

    @contextmanager
    def borrow(self, endpoint: Endpoint, timeout: float) -> Iterator[http.client.HTTPConnection]:
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

    def _take(self, endpoint: Endpoint) -> http.client.HTTPConnection:
        with self._lock:
            idle = self._idle[endpoint]
            connection = idle.pop() if idle else self._new(endpoint)
            self._busy.add(connection)
            return connection

    def _new(self, endpoint: Endpoint) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(endpoint.host, endpoint.port)
        return http.client.HTTPSConnection(endpoint.host, endpoint.port, context=self._tls)

    def _close_idle(self) -> None:
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection in kept]
            self._idle.clear()
        for connection in idle:
            connection.close()


def _shut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is None:
        return
    try:
        # Not SSLSocket's own: it pulls the session away from under the reader.
        socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
    except OSError:
        return  # it was closed already


def _tls_context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca)
        if files.cert is not None:
            context.load_cert_chain(files.cert, files.key)
    except OSError as error:
        named = ", ".join(name for name in (files.ca, files.cert, files.key) if name)
        raise UsageError(
            f"store URL: wanted readable PEM files, got {named} ({error.strerror or error})"
        ) from error
    return context
