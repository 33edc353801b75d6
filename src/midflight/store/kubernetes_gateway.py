"""Talks to a Kubernetes API server about one ConfigMap.

Reads it, replaces it, waits until it changes. A request may arrive twice, which does no harm: a
replacement names the version that it replaces. Where watching is not allowed, waiting is looking
now and then. For a training image, which has no client library.
"""

import http.client
import json
import math
import time

from midflight import kubeconfig
from midflight.errors import StoreError, UsageError
from midflight.store.http_client import Connection, HttpClient, Json, decode
from midflight.store.http_client import Refused as AnyRefused
from midflight.store.kubernetes_address import KubernetesAddress

CONFLICT = 409
_UNKNOWN, _FORBIDDEN, _MISSING = 401, 403, 404
_SETTLING = 2.0  # seconds in which a server that was just started may refuse whom it will know
_LONGEST_WATCH = 60.0  # seconds; a line that was cut in silence is found out by then
_POLL = 0.5  # seconds between two looks of whoever may not watch
_WATCH_AGAIN = 60.0  # seconds after which it asks whether it may by now


class Refused(AnyRefused):
    """The API server answered, and the answer was no."""

    def __init__(self, address: KubernetesAddress, status: int, reason: str) -> None:
        super().__init__(f"{address}: {_in_words(status, reason)}")
        self.status = status
        self.passing = status >= 500 or status == 429
        self.may_settle = status in (_UNKNOWN, _FORBIDDEN)


class Gateway:
    def __init__(self, address: KubernetesAddress, patience: float) -> None:
        """UsageError if a certificate cannot be used."""
        self.address = address
        self.patience = patience
        try:
            tls = None if address.plain else kubeconfig.tls(address.settings)
        except UsageError as error:
            raise UsageError(f"store URL: {error}") from None
        authority = "check the certificate authority"
        self._http = HttpClient(address, (address.endpoint,), tls, patience, authority)
        self._folder = f"{address.base}/api/v1/namespaces/{address.namespace}/configmaps"
        self._watch_from = 0.0  # when watching may be tried again

    @property
    def troubles(self) -> int:
        """How often a request had to be made again."""
        return self._http.troubles

    def read(self) -> Json:
        return self._http.persist(lambda line: self._ask(line, "GET", None), _SETTLING)

    def replace(self, config_map: Json) -> Json:
        """What it is afterwards. Refused with CONFLICT if it is not the version named in it."""
        body = json.dumps(config_map, separators=(",", ":")).encode()
        return self._http.persist(lambda line: self._ask(line, "PUT", body), _SETTLING)

    def await_change(self, version: str, deadline: float) -> None:
        """Returns when it may be another version, or when `deadline` (monotonic) comes."""
        if time.monotonic() >= self._watch_from:
            try:
                return self._http.persist(lambda line: self._listen(line, version, deadline))
            except Refused as error:
                if error.status != _FORBIDDEN:
                    raise
                self._watch_from = time.monotonic() + _WATCH_AGAIN
        self.rest(min(_POLL, deadline - time.monotonic()))

    def rest(self, seconds: float) -> None:
        """Does nothing for a while, or until it is closed."""
        self._http.rest(seconds)

    def close(self) -> None:
        self._http.close()

    def _ask(self, line: Connection, verb: str, body: bytes | None) -> Json:
        response = self._send(line, verb, f"{self._folder}/{self.address.name}", body)
        return decode(response.read())

    def _listen(self, line: Connection, version: str, deadline: float) -> None:
        """Without a version to start from, a watch begins with what there is now.

        So nothing is missed between the look before and this, however old that version is.
        """
        left = min(deadline - time.monotonic(), _LONGEST_WATCH)
        if left <= 0:
            return
        query = f"watch=1&timeoutSeconds={math.ceil(left)}"
        query += f"&fieldSelector=metadata.name%3D{self.address.name}"
        response = self._send(line, "GET", f"{self._folder}?{query}", None)
        until = time.monotonic() + left
        with self._http.stream(line, response, until) as hear:
            while _version(event := hear()) == version:
                continue
        if not _version(event):
            self._http.pause(until)

    def _send(
        self, line: Connection, verb: str, path: str, body: bytes | None
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "midflight"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        line.request(verb, path, body, headers | self._login())
        response = line.getresponse()
        if response.status == 200:
            return response
        raise Refused(self.address, response.status, _reason(response.read()))

    def _login(self) -> dict[str, str]:
        user = self.address.settings.user
        try:
            return kubeconfig.authorization(user)
        except (OSError, ValueError) as error:
            raise StoreError(f"cannot read the token file {user['tokenFile']}: {error}") from None


def _version(event: Json) -> str:
    """The version that an event tells of; "" if it is about something else."""
    if event.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
        return ""
    return str(event["object"]["metadata"]["resourceVersion"])


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
