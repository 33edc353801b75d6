"""Which cluster a kubeconfig means, and what is said when something about it is wrong."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from midflight.errors import (
    Exists,
    MidflightError,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
    UsageError,
)
from midflight.kubernetes.api import errors, kubeconfig, paths
from midflight.kubernetes.api.connection import open_connection, selector
from midflight.kubernetes.api.kubeconfig import Settings
from midflight.kubernetes.api.stdlib_http import StdlibHttp
from midflight.kubernetes.api.user import by_credentials
from midflight.kubernetes.client import KubernetesClient

WHERE = Settings("https://10.0.0.1:6443", "lab", "/home/u/.kube/config", user_name="me")


def written_config(folder: Path, name: str = "config", **more: Any) -> str:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://one:6443"}}],
        "users": [{"name": "u", "user": {"token": "t", "client-key": "keys/mine.pem"}}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "odd", "context": {"cluster": "gone"}},
            {"name": "bare", "context": {"cluster": "c"}},
        ],
        "current-context": "lab",
        **more,
    }
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))  # JSON is YAML as well
    return str(path)


def test_the_current_context_says_server_user_and_namespace(tmp_path: Path) -> None:
    found = kubeconfig.read([written_config(tmp_path)])
    assert (found.server, found.context) == ("https://one:6443", "lab")
    assert (found.user_name, found.namespace) == ("u", "team")
    assert found.user["client-key"] == str(tmp_path / "keys" / "mine.pem")


def test_several_files_are_one_and_the_first_wins(tmp_path: Path) -> None:
    first = written_config(tmp_path, "a/one", clusters=[], users=[], contexts=[])
    other = [{"name": "c", "cluster": {"server": "https://two", "certificate-authority": "ca"}}]
    second = written_config(tmp_path, "b/two", clusters=other)
    paths = kubeconfig.files(f"{first}:{second}:/not/there", tmp_path)
    found = kubeconfig.read(paths)
    assert found.server == "https://two"
    assert found.cluster["certificate-authority"] == str(tmp_path / "b" / "ca")
    assert kubeconfig.contexts(paths) == ["lab", "odd", "bare"]


def test_where_nothing_is_said_the_usual_file_is_meant(tmp_path: Path) -> None:
    assert kubeconfig.files("", tmp_path) == [str(tmp_path / ".kube" / "config")]


def test_a_context_without_a_user_is_nobody_in_particular(tmp_path: Path) -> None:
    found = kubeconfig.read([written_config(tmp_path)], "bare")
    assert (found.user, found.user_name) == ({}, "")


@pytest.mark.parametrize(
    ("context", "more", "said"),
    [
        ("prod", {}, "has no context 'prod'; there are: lab, odd, bare"),
        ("odd", {}, "wants cluster 'gone', which is not there"),
        ("", {"current-context": ""}, "`midflight context use kubernetes:NAME` .there are: lab"),
    ],
)
def test_what_a_kubeconfig_lacks_is_named(
    tmp_path: Path, context: str, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        kubeconfig.read([written_config(tmp_path, **more)], context)


def test_a_file_that_is_not_there_or_is_no_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no kubeconfig file /not/there; give one with"):
        kubeconfig.read(["/not/there"])
    (tmp_path / "text").write_text("just words")
    with pytest.raises(UsageError, match="text holds no configuration"):
        kubeconfig.read([str(tmp_path / "text")])
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(UsageError, match="bad is not YAML"):
        kubeconfig.read([str(tmp_path / "bad")])


def test_a_pod_knows_its_own_cluster(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "namespace").write_text("team\n")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = kubeconfig.in_pod(environ, tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "team")
    with pytest.raises(UsageError, match="this is not a pod with a service account"):
        kubeconfig.in_pod({}, tmp_path)


def test_a_certificate_that_is_missing_is_named() -> None:
    settings = Settings("https://one", "lab", "f", cluster={"certificate-authority": "/no/ca"})
    with pytest.raises(UsageError, match="f cannot be used"):
        open_connection(settings).version()
    assert StdlibHttp(settings).get("/version", {}) is None


# --- answers --------------------------------------------------------------------------------------


def status(code: int, message: str, reason: str = "", **details: str) -> bytes:
    found = {"kind": "Status", "code": code, "message": message, "reason": reason}
    return json.dumps({**found, "details": details}).encode()


ANSWERS: list[tuple[int, bytes, type[MidflightError], str]] = [
    (401, status(401, "Unauthorized"), Refused, "does not know you .401.: log in again, or look"),
    (403, status(403, "nope"), Refused, "you may not list x: nope; ask whoever runs the cluster"),
    (403, status(403, "exceeded quota: q, requested: pods=1"), Refused, "exceeded quota: q.*quota"),
    (404, status(404, 'pods "a" not found', name="a"), NotFound, 'pods "a" not found'),
    (404, b"404 page not found\n", errors.NoSuchKind, "knows no such resource"),
    (409, status(409, 'jobs "a" already exists', "AlreadyExists"), Exists, "already exists"),
    (409, status(409, "changed", "Conflict"), errors.Changed, "changed"),
    (410, status(410, "too old"), errors.Outdated, "too old"),
    (422, status(422, "spec.x: Invalid\nvalue"), Refused, "refuses to list x: spec.x: Invalid v"),
    (500, b"<html>", Unreachable, "cannot list x now .500.: <html>; try again later"),
    (503, status(503, "starting"), Unreachable, "starting; try again later"),
    (504, status(504, "slow"), TimedOut, "could not list x in time: slow; try again"),
]


@pytest.mark.parametrize(("code", "body", "kind", "said"), ANSWERS)
def test_an_answer_that_is_an_error_becomes_one_line(
    code: int, body: bytes, kind: type[MidflightError], said: str
) -> None:
    error = errors.from_answer(code, body, "list x", WHERE)
    assert type(error) is kind
    with pytest.raises(kind, match=said):
        raise error
    assert "\n" not in str(error)


def test_a_cluster_that_cannot_be_reached_is_named_with_the_file_that_says_where() -> None:
    refused = errors.from_transport(OSError("Connection refused"), WHERE, 10)
    assert "https://10.0.0.1:6443 of /home/u/.kube/config cannot be reached" in str(refused)
    late = errors.from_transport(TimeoutError("timed out"), WHERE, 10)
    assert "did not answer within 10 s" in str(late)
    words = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed (_ssl.c:1)"
    strange = errors.from_transport(OSError(words), WHERE, 10)
    assert "is not trusted (self-signed); set certificate-authority" in str(strange)


# --- a cluster that lacks something ---------------------------------------------------------------


class Old(BaseHTTPRequestHandler):
    """An API server that tells its version, and knows no kinds of ours."""

    minor = "19+"

    def do_GET(self) -> None:
        known = self.path == "/version"
        body = json.dumps({"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}"})
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(body.encode() if known else b"404 page not found")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def bare() -> Iterator[Settings]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Old) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Settings(f"http://127.0.0.1:{server.server_port}", "lab", "f")
        server.shutdown()
        thread.join()


def test_a_cluster_without_our_kinds_needs_the_operator(
    bare: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Old, "minor", "20")
    client = KubernetesClient(open_connection(bare))
    for ask in (lambda: client.jobs("default"), lambda: client.job("default", "demo")):
        with pytest.raises(Refused, match="run `midflight operator install` once"):
            ask()
    client.connection.close()


def test_a_cluster_that_is_too_old_is_told_so(bare: Settings) -> None:
    client = KubernetesClient(open_connection(bare))
    with pytest.raises(Refused, match=r"is Kubernetes v1.19\+, and 1.20 or later is needed"):
        client.jobs("default")
    client.connection.close()


# --- small things ---------------------------------------------------------------------------------


def test_paths_are_those_of_the_api() -> None:
    path = paths.path
    assert path("Pod", "a", "b", "log") == "/api/v1/namespaces/a/pods/b/log"
    assert path("TrainingJob", "*") == "/apis/kai.alibabacloud.com/v1alpha1/trainingjobs"
    assert path("Node", "a", "b") == "/api/v1/nodes/b"
    assert path("PriorityClass", "", "p") == "/apis/scheduling.k8s.io/v1/priorityclasses/p"
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "x"}}
    assert paths.word(job) == "pytorchjob.kubeflow.org/x"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "n"}}
    assert paths.word(secret) == "secret/x"
    assert paths.of(secret, name=True) == "/api/v1/namespaces/n/secrets/x"


def test_labels_are_selected_by_value_or_by_several() -> None:
    assert selector({"a": "b", "c": ("d", "e")}) == "a=b,c in (d,e)"


def test_who_one_is_can_be_told_from_a_token_or_from_the_name_of_the_user() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "system:x"}).encode()).decode()
    user = {"token": f"h.{claims.rstrip('=')}.s"}
    assert by_credentials(Settings("s", "c", "f", "me", user=user)) == "system:x"
    assert by_credentials(Settings("s", "c", "f", "me", user={"token": "opaque"})) == "me"
