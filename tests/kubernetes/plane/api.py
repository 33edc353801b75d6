"""Plain access to the API server for the tests and the plane itself: paths in, JSON out.

It knows no kinds and keeps no cache. `watch` lists, then follows; it ends at its deadline, and
starts again by itself when the server goes away or forgets where it was.
"""

import http.client
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_BREATH = 0.1  # seconds before an unreachable server is tried again


class ApiError(Exception):
    """What the API server answered instead of doing it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Access:
    """What a kubeconfig says: where the server is, whom to trust, and who calls."""

    host: str
    port: int
    authority: Path
    token: str | None
    certificate: tuple[Path, Path] | None

    @classmethod
    def read(cls, path: Path) -> "Access":
        """Reads the files that this package writes, which are JSON."""
        content = json.loads(path.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        url = urlsplit(cluster["server"])
        pair = user.get("client-certificate"), user.get("client-key")
        return cls(
            host=url.hostname or "",
            port=url.port or 443,
            authority=Path(cluster["certificate-authority"]),
            token=user.get("token"),
            certificate=(Path(pair[0]), Path(pair[1])) if pair[0] else None,
        )

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority))
        if self.certificate:
            context.load_cert_chain(*self.certificate)
        return context

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        self.access = Access.read(kubeconfig)
        self._tls = self.access.tls()

    def call(
        self, method: str, path: str, body: Json | None = None, kind: str = "application/json"
    ) -> Json:
        answer: Json = json.loads(self._exchange(method, path, body, kind))
        return answer

    def text(self, path: str) -> str:
        return self._exchange("GET", path, None, "").decode(errors="replace")

    def get(self, path: str) -> Json | None:
        """None where there is no such thing."""
        try:
            return self.call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def delete(self, path: str, grace: int | None = None) -> None:
        """Deleting what is not there is no fault."""
        options: Json = {"propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.call("DELETE", path, options)
        except ApiError as error:
            if error.status != 404:
                raise

    def ready(self) -> bool:
        try:
            return self._exchange("GET", "/readyz", None, "") == b"ok"
        except (OSError, http.client.HTTPException, ApiError):
            return False

    def watch(self, path: str, seconds: float, **query: str) -> Iterator[tuple[str, Json]]:
        """Events ('ADDED', object) and so on, first of all for what is there already.

        After ('LISTED', list) that is complete.
        """
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                for event in self._list_and_follow(path, query, left):
                    yield event
                    if time.monotonic() > deadline:
                        return
            except (OSError, http.client.HTTPException):
                time.sleep(_BREATH)  # the server is away; there is no event to await
            except ApiError as error:
                if error.status < 500:
                    raise
                time.sleep(_BREATH)

    def stream(self, path: str, seconds: float) -> Iterator[str]:
        """Lines of a text that grows, a log that is followed, until it ends or time is up."""
        deadline = time.monotonic() + seconds
        connection = self._connect(seconds)
        try:
            connection.request("GET", path, headers=self._headers())
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError(response.status, error_message(response.read()))
            while line := response.readline():
                yield line.decode(errors="replace")
                if time.monotonic() > deadline:
                    return
        except TimeoutError:
            return
        finally:
            connection.close()

    def _list_and_follow(
        self, path: str, query: dict[str, str], seconds: float
    ) -> Iterator[tuple[str, Json]]:
        listed = self.call("GET", f"{path}?{urlencode(query)}")
        yield from (("ADDED", item) for item in listed["items"])
        yield "LISTED", listed
        version = listed["metadata"]["resourceVersion"]
        arguments = query | {"watch": "true", "resourceVersion": version}
        connection = self._connect(seconds)
        try:
            connection.request("GET", f"{path}?{urlencode(arguments)}", headers=self._headers())
            response = connection.getresponse()
            while line := response.readline():
                event = json.loads(line)
                if event["type"] == "ERROR":  # too old a version: list again
                    return
                yield event["type"], event["object"]
        finally:
            connection.close()

    def _exchange(self, method: str, path: str, body: Json | None, kind: str) -> bytes:
        connection = self._connect(30)
        try:
            headers = self._headers() | ({"Content-Type": kind} if body is not None else {})
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        if response.status >= 400:
            raise ApiError(response.status, error_message(content))
        return content

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        where = self.access
        return http.client.HTTPSConnection(
            where.host, where.port, timeout=seconds, context=self._tls
        )

    def _headers(self) -> dict[str, str]:
        return {"Accept": "application/json", **self.access.headers()}


def error_message(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")[:500]
