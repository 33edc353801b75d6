"""The port that Prometheus reads: who sees what, and when it is there."""

import http.client
import re
import socket
import stat
from pathlib import Path

import pytest

from midflight.errors import UsageError
from midflight.monitoring.page_server import brings
from midflight.server.metrics_port import TOKEN, read_address
from tests.metric_text import parsed, value
from tests.server.site import Site

ANY_PORT = {"MIDFLIGHT_METRICS": "127.0.0.1:0"}


def get(site: Site, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    ports = re.findall(r"metrics on 127\.0\.0\.1:(\d+)", site.log)
    connection = http.client.HTTPConnection("127.0.0.1", int(ports[-1]), timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status == 401:
            assert answer.getheader("www-authenticate") == "Bearer"
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def token(home: Path) -> str:
    return (home / TOKEN).read_text().strip()


@pytest.mark.slow
def test_whoever_has_the_token_sees_the_metrics_and_nothing_else(site: Site) -> None:
    site.serve(**ANY_PORT)
    known = {"authorization": f"Bearer {token(site.home)}"}
    status, text = get(site, **known)
    assert status == 200
    assert value(parsed(text), "midflight_jobs", phase="RUNNING") == 0
    for path in ("/", "/api/v1/status", "/api/v1/jobs", "/metrics/.."):
        assert get(site, path, **known)[0] == 404


@pytest.mark.slow
def test_without_the_token_nothing_is_seen(site: Site) -> None:
    site.serve(**ANY_PORT)
    right = token(site.home)
    for said in (None, "", right, f"Basic {right}", "Bearer", f"Bearer {right}x", "Bearer ümlaut"):
        headers = {} if said is None else {"authorization": said.encode().decode("latin-1")}
        for path in ("/metrics", "/nothing"):
            status, text = get(site, path, **headers)
            assert (status, "midflight_" in text) == (401, False), said


@pytest.mark.slow
def test_the_token_is_this_user_s_alone_and_outlives_the_server(site: Site) -> None:
    site.serve(**ANY_PORT)
    first = token(site.home)
    assert len(first) == 64
    assert stat.S_IMODE((site.home / TOKEN).stat().st_mode) == 0o600
    site.kill()
    site.serve(**ANY_PORT)
    assert token(site.home) == first
    assert get(site, authorization=f"Bearer {first}")[0] == 200


@pytest.mark.slow
def test_no_port_is_open_where_nobody_asks_for_one(site: Site) -> None:
    site.serve()
    assert "metrics on" not in site.log
    assert not (site.home / TOKEN).exists()


@pytest.mark.slow
def test_a_token_that_others_can_read_is_refused(site: Site) -> None:
    site.serve(**ANY_PORT)
    site.kill()
    (site.home / TOKEN).chmod(0o644)
    assert "can be read by others" in site.fails(**ANY_PORT)


@pytest.mark.slow
def test_a_server_says_why_it_cannot_open_the_port(site: Site) -> None:
    assert "wanted MIDFLIGHT_METRICS=PORT or HOST:PORT" in site.fails(MIDFLIGHT_METRICS="metrics")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        said = site.fails(MIDFLIGHT_METRICS=port)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("node-1:9464", ("node-1", 9464)),
    ],
)
def test_an_address_needs_no_host(text: str, address: tuple[str, int]) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize("text", ["x", ":9464", "here:", "here:65536", "here:-1", "1e3", "²"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="wanted MIDFLIGHT_METRICS"):
        read_address(text)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([b"Authorization: Bearer secret"], True),
        ([b"host: here", b"AUTHORIZATION:bearer  secret "], True),
        ([], False),
        ([b"authorization: Bearer secret", b"authorization: Bearer secret"], False),
        ([b"authorization: Bearer secret more"], False),
        ([b"authorization: Bearer \xff\xfe"], False),
        ([b"x-authorization: Bearer secret"], False),
    ],
)
def test_the_token_comes_once_and_whole(headers: list[bytes], found: bool) -> None:
    assert brings(headers, b"secret") is found
