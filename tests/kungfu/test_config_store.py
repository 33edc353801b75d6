"""The config store over HTTP: KungFu's methods, versions, bad input, tokens; and its client."""

import http.client
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from midflight.compat.kungfu import config_server, run
from midflight.compat.kungfu.cluster import Cluster
from midflight.compat.kungfu.config import ConfigStoreClient, Outdated
from midflight.compat.kungfu.config_store import (
    FOLLOWED_SECONDS,
    LARGEST_BODY,
    MOST_STRANGERS,
    ConfigServer,
    ConfigStore,
    Rejected,
)
from midflight.compat.kungfu.run_flags import read
from midflight.errors import Refused, TimedOut, Unreachable, UsageError
from tests.kungfu.commands import Commands, cluster

ONE, TWO = cluster("127.0.0.1:10000"), cluster("127.0.0.1:10000", "127.0.0.1:10001")


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    headers: dict[str, str]


class Raw:
    """Plain HTTP, without the client."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._at = (parts.hostname, parts.port)

    def ask(
        self, method: str, body: str | bytes | None = None, path: str = "/config", **headers: str
    ) -> Answer:
        line = http.client.HTTPConnection(*self._at, timeout=5)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            line.request(method, path, body, sent)
            answer = line.getresponse()
            return Answer(answer.status, answer.read().decode(), dict(answer.headers))
        finally:
            line.close()


@pytest.fixture
def server() -> Iterator[ConfigServer]:
    with ConfigServer() as made:
        made.start()
        yield made
        made.shutdown()


@pytest.fixture
def raw(server: ConfigServer) -> Raw:
    return Raw(server.url)


@pytest.fixture
def client(server: ConfigServer) -> ConfigStoreClient:
    return ConfigStoreClient(server.url)


def test_get_put_post_and_delete_are_kungfus(raw: Raw) -> None:
    nothing = raw.ask("GET")
    assert (nothing.status, nothing.text) == (404, "No Config Found.\n")
    assert raw.ask("PUT", ONE.dumps()).headers["X-Config-Version"] == "1"
    assert json.loads(raw.ask("GET").text) == ONE.to_json()
    assert raw.ask("POST").status == 200
    assert raw.ask("GET").status == 404
    assert raw.ask("PUT", TWO.dumps()).status == 200
    assert raw.ask("DELETE").status == 200
    assert raw.ask("GET").status == 404


def test_a_cluster_that_was_cleared_takes_no_put_until_it_is_reset(raw: Raw) -> None:
    raw.ask("PUT", ONE.dumps())
    assert raw.ask("PUT", Cluster(ONE.runners, ()).dumps()).status == 200
    refused = raw.ask("PUT", ONE.dumps())
    assert refused.status == 403
    assert "config was cleared" in refused.text
    assert raw.ask("POST").status == 200
    assert raw.ask("PUT", ONE.dumps()).status == 200


def test_each_change_has_a_version_and_only_the_one_that_was_seen_is_replaced(raw: Raw) -> None:
    first = raw.ask("PUT", ONE.dumps()).headers["ETag"]
    assert raw.ask("GET").headers["ETag"] == first
    assert raw.ask("GET", If_None_Match=first).status == 304
    second = raw.ask("PUT", TWO.dumps(), If_Match=first).headers["ETag"]
    assert second != first
    late = raw.ask("PUT", ONE.dumps(), If_Match=first)
    assert late.status == 412
    assert late.text.count("\n") == 1
    assert raw.ask("PUT", ONE.dumps(), If_None_Match="*").status == 412
    assert raw.ask("DELETE", If_Match=first).status == 412
    assert raw.ask("GET").headers["ETag"] == second
    assert raw.ask("PUT", TWO.dumps(), If_Match=second).headers["ETag"] == second, "nothing new"
    assert raw.ask("DELETE", If_Match=second).status == 200
    assert raw.ask("PUT", TWO.dumps(), If_Match="*").status == 412
    assert raw.ask("PUT", TWO.dumps(), If_None_Match="*").status == 200


@pytest.mark.parametrize("body", ["", "{", '{"Workers":[{"IPv4":1,"Port":1}]}', b"\xff\xfe"])
def test_invalid_input_is_refused_and_changes_nothing(raw: Raw, body: str | bytes) -> None:
    raw.ask("PUT", ONE.dumps())
    refused = raw.ask("PUT", body)
    assert refused.status == 400
    assert refused.text.strip()
    assert refused.text.count("\n") == 1
    assert json.loads(raw.ask("GET").text) == ONE.to_json()


def test_what_is_too_long_or_has_no_length_is_not_even_read(raw: Raw) -> None:
    assert raw.ask("PUT", None, Content_Length=str(LARGEST_BODY + 1)).status == 413
    assert raw.ask("PUT", None, Content_Length="9" * 40).status == 413
    assert raw.ask("PUT", None, Content_Length="-1").status == 400
    assert raw.ask("PUT", None, Transfer_Encoding="chunked").status == 411


def test_other_methods_and_paths_are_named(raw: Raw) -> None:
    refused = raw.ask("PATCH", "{}")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, PUT, POST, DELETE")
    assert raw.ask("GET", path="/get").status == 404
    assert raw.ask("PUT", ONE.dumps(), path="/").status == 404


def test_the_client_reads_writes_and_notices_that_others_were_faster(
    client: ConfigStoreClient,
) -> None:
    client.wait_server()
    assert client.get() is None
    client.put(ONE, absent=True)
    with pytest.raises(Outdated):
        client.put(TWO, absent=True)
    seen = client.get()
    assert seen is not None
    assert (seen.cluster, seen.version) == (ONE, 1)
    client.put(TWO, if_match=seen.etag)
    with pytest.raises(Outdated, match="412"):
        client.put(ONE, if_match=seen.etag)
    with pytest.raises(Outdated):
        client.delete(if_match=seen.etag)
    client.reset()
    assert client.get() is None
    names = cluster("::1:10000", "node-1:10000")
    client.put(names)
    client.delete()
    client.put(names)
    found = client.get()
    assert found is not None
    assert found.cluster == names


def test_the_client_says_who_does_not_answer_and_what_was_refused(
    client: ConfigStoreClient,
) -> None:
    with pytest.raises(Refused, match="no runner"):
        client.put(Cluster((), ONE.workers))
    gone = ConfigStoreClient("http://127.0.0.1:9/config")
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9/config does not answer"):
        gone.get()
    with pytest.raises(TimedOut, match="does not answer"):
        gone.wait_server(0.1)
    for url in ("", "127.0.0.1:9100", "ftp://h/config", "http://h:port/config"):
        with pytest.raises(UsageError, match="config server is named"):
            ConfigStoreClient(url)


def test_with_a_token_nobody_else_gets_in_and_it_is_not_told(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.touch(0o600)
    token_file.write_text("open sesame\n")
    with ConfigServer(token=b"open sesame") as server:
        server.start()
        raw = Raw(server.url)
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic open"}):
            refused = raw.ask("PUT", ONE.dumps(), **header)
            assert refused.status == 401
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            assert "sesame" not in refused.text
        assert raw.ask("GET", path="/stop").status == 401
        client = ConfigStoreClient(server.url, str(token_file))
        client.put(ONE)
        assert client.get() is not None
        with pytest.raises(Refused, match="401"):
            ConfigStoreClient(server.url).get()
        server.shutdown()


def test_a_body_without_the_token_is_not_waited_for() -> None:
    with ConfigServer(token=b"secret") as server:
        server.start()
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=5) as line:
            line.sendall(
                b"PUT /config HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n" + b"x" * (1 << 16)
            )
            assert line.recv(12) == b"HTTP/1.1 401", "though most of the body never comes"
        server.shutdown()


def test_idle_callers_are_bounded_and_keep_nobody_out(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("secret\n")
    with ConfigServer(token=b"secret") as server, ExitStack() as idle:
        server.start()
        before = threading.active_count()
        for _ in range(3 * MOST_STRANGERS):
            idle.enter_context(
                socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=5)
            )
        client = ConfigStoreClient(server.url, str(token), timeout=5)
        deadline = time.monotonic() + 20
        while True:
            try:
                client.put(ONE)
                break
            except Unreachable:
                assert time.monotonic() < deadline
        held = client.get()
        assert held is not None and held.cluster == ONE
        assert threading.active_count() - before <= MOST_STRANGERS + 1
        server.shutdown()


def test_the_store_of_a_launcher_is_for_its_user_alone(tmp_path: Path) -> None:
    """Every user of the machine could change the cluster."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    given = read(["-builtin-config-port", str(port), "python3", "train.py"])
    with run._builtin(given, tmp_path / "home") as flags:
        assert Raw(flags.store).ask("PUT", ONE.dumps()).status == 401
        assert Raw(flags.store).ask("GET").status == 401
        ConfigStoreClient(flags.store, flags.token_file).put(ONE)
        token = tmp_path / "home" / f"kungfu-{port}.token"
        assert run._variables(flags)["KUNGFU_CONFIG_TOKEN_FILE"] == flags.token_file == str(token)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (token, token.parent)] == [
            0o600,
            0o700,
        ]
        as_documented = {"Authorization": f"Bearer {token.read_text().strip()}"}
        assert Raw(flags.store).ask("GET", **as_documented).status == 200
    assert not token.exists()


def test_the_command_serves_what_it_was_given_and_ends_by_stop_or_in_time(
    commands: Commands,
) -> None:
    init = commands.folder / "init.json"
    init.write_text(TWO.dumps())
    server, client = commands.config_server("-init", str(init), "-host", "localhost")
    found = client.get()
    assert found is not None
    assert found.cluster == TWO
    client.stop()
    assert server.ends() == 0
    brief, _ = commands.config_server("--ttl=100ms")
    assert brief.ends() == 0


def test_one_launcher_follows_a_store_until_it_has_been_silent_for_a_while() -> None:
    store = ConfigStore(ONE)
    store.follow("first", now=10.0)
    store.follow("first", now=12.0)
    with pytest.raises(Rejected, match="another kungfu-run follows"):
        store.follow("second", now=12.0 + FOLLOWED_SECONDS - 0.1)
    store.follow("second", now=12.0 + FOLLOWED_SECONDS)


def test_a_second_kungfu_run_on_the_same_store_is_refused_and_starts_nothing(
    server: ConfigServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ConfigStoreClient(server.url, runner="first").put(TWO)
    monkeypatch.setattr(run, "FOLLOWED_SECONDS", -1.0)  # the first has not just ended
    flags = ("-H", "127.0.0.2:4", "-self", "127.0.0.2", "-w", "-init-version", "-1")
    assert run.main([*flags, "-config-server", server.url, "python3", "train.py"]) == 2
    assert "another kungfu-run follows" in capsys.readouterr().err


def test_the_command_listens_on_ipv6_too(commands: Commands) -> None:
    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    server, client = commands.config_server("-host=::1", "-endpoint", "/c")
    assert "[::1]" in client.url
    client.put(ONE)
    client.stop()
    assert server.ends() == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("-prot", "1"), "there is no flag -prot"),
        (("-port", "70000"), "wanted a whole number from 0 to 65535"),
        (("-port",), "-port needs a value"),
        (("-ttl", "soon"), "wanted a length of time"),
        (("-init", "/nowhere.json"), "cannot read the config /nowhere.json"),
        (("-endpoint", "config"), "-endpoint wants a path"),
        (("-token-file", "/nowhere"), "cannot read the token file"),
        (("-host", "192.0.2.1", "-port", "0"), "cannot listen on 192.0.2.1:0"),
        (("go",), "takes flags only"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    assert config_server.main(words) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
