"""The verbs' connection to the API server: plain JSON in and out, and errors that say what to do.

lightkube makes the connection (TLS, tokens that are renewed, programs that log in). Requests are
made here, since its client has no preconditions of a deletion, no lists from the server's cache, no
`sinceTime` of a log and no terminal for a command. It is loaded with the first request, so that a
verb without one does not wait for it.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from midflight.deadlines import WATCH
from midflight.errors import MidflightError, NotFound, Unreachable
from midflight.kubeconfig import Settings
from midflight.kubernetes import names
from midflight.kubernetes.api import errors
from midflight.kubernetes.api.errors import NoSuchKind, Outdated
from midflight.kubernetes.api.kubeconfig import DEFAULT_NAMESPACE, files, for_lightkube, read
from midflight.kubernetes.api.paths import of, path, plural, word

if TYPE_CHECKING:
    import httpx2

    from midflight.kubernetes.api.stdlib_http import StdlibHttp

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
PAGE = 500  # objects that one answer holds at the most
_PAUSE = 0.2  # seconds before a watch that broke is begun anew
_JSON = "application/json"
_CONTENT = {"PATCH": "application/merge-patch+json", "APPLY": "application/apply-patch+yaml"}
Object = dict[str, Any]


def connect(config: str = "", context: str = "", namespace: str = "") -> "Connection":
    """`config`: a kubeconfig file, or several as in KUBECONFIG; "" for the usual one."""
    settings = read(files(config, Path.home()), context)
    return open_connection(settings, namespace)


def open_connection(settings: Settings, namespace: str = "") -> "Connection":
    return Connection(settings, namespace or settings.namespace)


def _http(settings: Settings) -> "httpx2.Client":
    import httpx2
    from lightkube.config.client_adapter import Client, ConnectionParams
    from lightkube.core.exceptions import ConfigError

    timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    proxy = settings.cluster.get("proxy-url") or None
    try:
        return Client(for_lightkube(settings), ConnectionParams(timeout=timeout, proxy=proxy))
    except (ConfigError, OSError, ValueError) as error:
        raise errors.bad_config(error, settings) from None


class Connection:
    def __init__(self, settings: Settings, namespace: str) -> None:
        self.settings = settings
        self.namespace = namespace or DEFAULT_NAMESPACE

    @cached_property
    def http(self) -> "httpx2.Client":
        return _http(self.settings)

    @cached_property
    def _stdlib(self) -> "StdlibHttp":
        from midflight.kubernetes.api.stdlib_http import StdlibHttp

        return StdlibHttp(self.settings)

    def get_quickly(self, where: str, params: Mapping[str, str]) -> bytes | None:
        """Without lightkube; None if that does not do, and the usual way says why."""
        return self._stdlib.get(where, params)

    def close(self) -> None:
        if "http" in self.__dict__:
            self.http.close()

    # --- one question, one answer -----------------------------------------------------------

    def get(self, kind: str, namespace: str, name: str) -> Object:
        return self.ask("GET", path(kind, namespace, name), what=f"get {_word(kind)} {name}")

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        """None if there is none of that name; NoSuchKind if there can be none."""
        try:
            return self.get(kind, namespace, name)
        except NoSuchKind:
            raise
        except NotFound:
            return None

    def items(self, kind: str, namespace: str, **params: str) -> list[Object]:
        """All of them, in as many answers as it takes; begun anew if that takes too long."""
        where, what = path(kind, namespace), f"list {plural(kind)}"
        found: list[Object] = []
        more = ""
        while True:
            query = {"limit": str(PAGE), **params, **({"continue": more} if more else {})}
            try:
                answer = self.ask("GET", where, query, what=what)
            except Outdated:
                found, more = [], ""
                continue
            found += answer.get("items") or []
            more = (answer.get("metadata") or {}).get("continue") or ""
            if not more:
                return found

    def find_object(self, manifest: Mapping[str, Any]) -> Object | None:
        """The object of that kind and name; None if there is none."""
        try:
            return self.ask("GET", of(manifest, name=True), what=f"get {word(manifest)}")
        except NoSuchKind:
            raise
        except NotFound:
            return None

    def create(self, manifest: Mapping[str, Any]) -> Object:
        query = {"fieldManager": names.MANAGER}
        return self.ask("POST", of(manifest), query, manifest, f"create {word(manifest)}")

    def replace(self, manifest: Mapping[str, Any], manager: str) -> Object:
        where, query = of(manifest, name=True), {"fieldManager": manager}
        return self.ask("PUT", where, query, manifest, f"replace {word(manifest)}")

    def apply(self, manifest: Mapping[str, Any], manager: str) -> Object:
        """Server-side apply, forced: the fields in `manifest` become ours."""
        where, query = of(manifest, name=True), {"fieldManager": manager, "force": "true"}
        return self.ask("APPLY", where, query, manifest, f"apply {word(manifest)}")

    def patch(self, where: str, body: Mapping[str, Any], what: str) -> Object:
        """A merge patch: what is None goes."""
        return self.ask("PATCH", where, body=body, what=what)

    def delete(self, kind: str, namespace: str, name: str, **options: Any) -> None:
        self._delete(path(kind, namespace, name), f"delete {_word(kind)} {name}", options)

    def delete_object(self, obj: Mapping[str, Any], **options: Any) -> None:
        self._delete(of(obj, name=True), f"delete {word(obj)}", options)

    def _delete(self, where: str, what: str, options: Mapping[str, Any]) -> None:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        self.ask("DELETE", where, body=body, what=what)

    def ask(
        self,
        method: str,
        where: str,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        what: str = "",
    ) -> Object:
        """`method`: of HTTP, or APPLY; `what`: what is asked for, as in "list trainingjobs"."""
        import msgspec

        verb = "PATCH" if method == "APPLY" else method
        headers = {"Content-Type": _CONTENT.get(method, _JSON)} if body is not None else {}
        data = None if body is None else json.dumps(body).encode()
        with self.translated():
            answer = self.http.request(verb, where, params=params, content=data, headers=headers)
        if answer.status_code >= 400:
            raise self._error(answer.status_code, answer.content, what)
        try:
            found: Object = msgspec.json.decode(answer.content)
        except msgspec.DecodeError:
            raise Unreachable(
                f"{self.settings.server} answered with something other than JSON; "
                "is it an API server?"
            ) from None
        return found

    def version(self) -> str:
        """Of the cluster, such as v1.20.2; Refused if that is too old."""
        found = self.ask("GET", "/version", what="tell its version")
        text = str(found.get("gitVersion", ""))
        if (_number(found.get("major")), _number(found.get("minor"))) < errors.OLDEST:
            raise errors.too_old(self.settings, text)
        return text

    def no_resources(self) -> MidflightError:
        """Why the cluster knows nothing of training jobs."""
        self.version()
        return errors.no_resources(self.settings)

    # --- answers that go on -----------------------------------------------------------------

    def pieces(self, where: str, params: Mapping[str, str], what: str) -> Iterator[bytes]:
        """An answer as it comes, without an end of its own."""
        import httpx2

        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=None)
        with (
            self.translated(),
            self.http.stream("GET", where, params=params, timeout=timeout) as answer,
        ):
            if answer.status_code >= 400:
                raise self._error(answer.status_code, answer.read(), what)
            yield from answer.iter_bytes()

    def watch(
        self, kind: str, namespace: str, version: str, seconds: float, **params: str
    ) -> Iterator[tuple[str, Object]]:
        """ADDED, MODIFIED and DELETED since `version`; Outdated if that is too long ago."""
        import msgspec

        limit = max(1, round(min(seconds, WATCH)))
        query = {**params, "watch": "1", "resourceVersion": version, "timeoutSeconds": f"{limit}"}
        rest = b""
        for piece in self.pieces(path(kind, namespace), query, f"watch {plural(kind)}"):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    code = int(event["object"].get("code") or 500)
                    raise self._error(code, json.dumps(event["object"]).encode(), "watch")
                yield event["type"], event["object"]

    def changes(
        self, kind: str, namespace: str, name: str, seconds: float
    ) -> Iterator[Object | None]:
        """The object as it is, and after each change; None once it is gone. Ends after a while."""
        deadline = time.monotonic() + seconds
        seen = ""
        while True:
            now = self.find(kind, namespace, name)
            if now is None:
                yield None
                return
            if now["metadata"]["resourceVersion"] != seen:
                yield now
            seen = now["metadata"]["resourceVersion"]
            if (left := deadline - time.monotonic()) <= 0:
                return
            try:
                for event, found in self._changed(kind, namespace, name, seen, left):
                    yield None if event == "DELETED" else found
                    if event == "DELETED":
                        return
                    seen = found["metadata"]["resourceVersion"]
            except (Outdated, Unreachable):
                time.sleep(_PAUSE)  # the API server, or the way to it, may have been restarted

    def _changed(
        self, kind: str, namespace: str, name: str, version: str, left: float
    ) -> Iterator[tuple[str, Object]]:
        """The server counts whole seconds, so the last part of one is looked at afterwards."""
        selector = f"metadata.name={name}"
        return self.watch(kind, namespace, version, left, fieldSelector=selector)

    # --- errors -----------------------------------------------------------------------------

    @contextmanager
    def translated(self) -> Iterator[None]:
        """What the network, or a program that logs in, makes of it is said in our own words."""
        import httpx2
        from lightkube.core.exceptions import ConfigError

        try:
            yield
        except httpx2.HTTPError as error:
            seconds = (
                CONNECT_SECONDS if isinstance(error, httpx2.ConnectTimeout) else ANSWER_SECONDS
            )
            raise errors.from_transport(error, self.settings, seconds) from None
        except (ConfigError, httpx2.InvalidURL, OSError, ValueError, KeyError) as error:
            raise errors.bad_config(error, self.settings) from None

    def _error(self, code: int, body: bytes, what: str) -> MidflightError:
        return errors.from_answer(code, body, what, self.settings)


def _word(kind: str) -> str:
    return plural(kind)[:-1] if kind in (names.TRAININGJOB, names.PYTORCHJOB) else kind.lower()


def _number(text: object) -> int:
    """Some clouds write 20+."""
    digits = "".join(each for each in str(text or 0) if each.isdigit())
    return int(digits or 0)


def selector(labels: Mapping[str, str | Sequence[str]]) -> str:
    return ",".join(
        f"{key}={value}" if isinstance(value, str) else f"{key} in ({','.join(value)})"
        for key, value in labels.items()
    )
