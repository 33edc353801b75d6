"""Talks to etcd v3 through its JSON gateway: requests, watches, tokens and errors.

Rides out a lost leader and a restarted server, as `http_client` does. Knows nothing of keys and
values.
"""

import http.client
import json
import ssl

from midflight.errors import UsageError
from midflight.store.etcd_address import EtcdAddress, TlsFiles
from midflight.store.http_client import Connection, HttpClient, Json, decode
from midflight.store.http_client import Refused as AnyRefused

NOT_FOUND = 5  # gRPC's numbers
_DENIED = 7
_UNAUTHENTICATED = 16


class Refused(AnyRefused):
    """etcd answered, and the answer was no."""

    def __init__(self, address: EtcdAddress, status: int, code: int, reason: str) -> None:
        super().__init__(f"{address}: refused ({reason})")
        self.code = code
        self.token_is_stale = code == _UNAUTHENTICATED or "auth store is old" in reason
        # Asking again can help: no leader yet, going down, overloaded; or with another token.
        self.passing = status >= 500 or "too many requests" in reason
        self.passing |= self.token_is_stale and address.user is not None


class Gateway:
    def __init__(self, address: EtcdAddress, patience: float) -> None:
        self.address = address
        self.patience = patience
        tls = None if address.tls is None else _tls_context(address.tls)
        authority = (
            "name its certificate authority with ?ca=FILE, and, if it asks for one, "
            "your own certificate with ?cert=FILE&key=FILE"
        )
        self._http = HttpClient(address, address.endpoints, tls, patience, authority)
        self._token: str | None = None

    def call(self, path: str, body: Json) -> Json:
        """One question, one answer. Raises Refused, or StoreUnavailable."""

        def ask(connection: Connection) -> Json:
            response = self._post(connection, path, body, self._credentials(connection))
            return self._answer(decode(response.read()))

        return self._http.persist(ask)

    def await_event(self, create: Json, deadline: float) -> None:
        """Returns when a watch has something to tell, breaks, or `deadline` (monotonic) comes."""

        def listen(connection: Connection) -> None:
            # Without a leader the watch shall break, not fall silent.
            headers = self._credentials(connection) | {"Grpc-Metadata-hasleader": "true"}
            response = self._post(connection, "/v3/watch", {"create_request": create}, headers)
            with self._http.stream(connection, response, deadline) as hear:
                # "created": from here on no event is missed
                self._answer(decode(response.readline()))
                heard = hear().get("result", {})
            if "permission denied" in heard.get("cancel_reason", ""):
                raise Refused(self.address, 403, _DENIED, heard["cancel_reason"])
            if "events" not in heard:
                self._http.pause(deadline)

        self._http.persist(listen)

    def close(self) -> None:
        self._http.close()

    def _credentials(self, connection: Connection) -> dict[str, str]:
        if self.address.user is None:
            return {}
        token = self._token
        if token is None:
            body = {"name": self.address.user, "password": self.address.password}
            response = self._post(connection, "/v3/auth/authenticate", body, {})
            self._token = token = str(self._answer(decode(response.read()))["token"])
        return {"Authorization": token}

    def _post(
        self, connection: Connection, path: str, body: Json, headers: dict[str, str]
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
        raise self._refused(response.status, code, reason)

    def _answer(self, answer: Json) -> Json:
        if "error" in answer:  # a stream's way to say no
            told = answer["error"]
            raise self._refused(told["http_code"], told.get("grpc_code", 0), told["message"])
        return answer

    def _refused(self, status: int, code: int, reason: str) -> Refused:
        error = Refused(self.address, status, code, reason)
        if error.token_is_stale:
            self._token = None
        return error


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
