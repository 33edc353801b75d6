"""What is special about the store in etcd: servers that go, come back, or are not there."""

import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from midflight.errors import Conflict, StoreError, StoreUnavailable
from midflight.store import Store
from tests.kubernetes.plane.certificates import Authority
from tests.store.child import add_one
from tests.store.etcd_process import Etcd, free_port
from tests.store.lossy_proxy import LossyProxy

pytestmark = pytest.mark.slow  # real processes or servers


SOON = 30.0

Open = Callable[..., Store]
StartEtcd = Callable[..., Etcd]


@pytest.fixture
def proxy(etcd: Etcd) -> Iterator[LossyProxy]:
    proxy = LossyProxy(etcd.ports[0])
    yield proxy
    proxy.close()


def encode(raw: bytes) -> str:
    return b64encode(raw).decode()


def through(proxy: LossyProxy, prefix: str) -> str:
    return f"etcd://127.0.0.1:{proxy.port}/{prefix}"


# ------------------------------------------------------------------------- outages


def test_a_restarted_server_is_ridden_out(start_etcd: StartEtcd, opened: Open) -> None:
    server = start_etcd()
    store = opened(server.url(), patience=SOON)
    entry = store.put("job", b"1", expect=0)
    lease = store.lease(60)
    before = store.watch("job")
    with ThreadPoolExecutor(2) as threads:
        watching = threads.submit(store.watch, "job", after=before, timeout=2 * SOON)
        server.kill()
        writing = threads.submit(store.put, "job", b"2", expect=entry.version)
        server.start()
        assert writing.result(SOON).value == b"2"
        assert watching.result(SOON).entries == {"job": writing.result()}
    lease.renew()


def test_a_count_stays_exact_while_the_server_is_killed_again_and_again(
    start_etcd: StartEtcd, opened: Open
) -> None:
    server = start_etcd()
    store = opened(server.url(), patience=SOON)
    over = threading.Event()

    def count(_: int) -> int:
        times = 0
        while not over.is_set():
            add_one(store, "count")
            times += 1
        return times

    with ThreadPoolExecutor(3) as threads:
        counts = [threads.submit(count, number) for number in range(3)]
        try:
            view = store.watch("count")
            for _ in range(2):
                for _ in range(5):
                    view = store.watch("count", after=view, timeout=SOON)
                server.kill()
                server.start()
        finally:
            over.set()
        total = sum(each.result(SOON) for each in counts)
    assert store.get("count").value == str(total).encode()  # type: ignore[union-attr]


def test_a_cluster_that_loses_its_leader_is_ridden_out(start_etcd: StartEtcd, opened: Open) -> None:
    cluster = start_etcd(3)
    store, other = opened(cluster.url(), patience=SOON), opened(cluster.url(), patience=SOON)
    entry = store.put("job", b"1", expect=0)
    lease = store.lease(60)
    leased = store.put("agent", b"", expect=0, lease=lease)
    before = other.watch("job")
    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(other.watch, "job", after=before, timeout=2 * SOON)
        cluster.kill(cluster.leader())
        written = store.put("job", b"2", expect=entry.version)
        assert watching.result(SOON).entries == {"job": written}
    with pytest.raises(Conflict):
        other.put("job", b"3", expect=entry.version)
    lease.renew()
    assert other.get("agent") == leased


def test_a_server_that_is_not_there_is_told_in_one_line(opened: Open) -> None:
    store = opened(f"etcd://me:hunter2@127.0.0.1:{free_port()}/x", patience=0.2)
    for call in (
        lambda: store.get("job"),
        lambda: store.put("job", b"", expect=0),
        lambda: store.watch("job", timeout=5),
        lambda: store.lease(1),
    ):
        with pytest.raises(StoreUnavailable, match=r"no answer.*refused.*check that it runs") as no:
            call()
        assert "\n" not in str(no.value)
        assert "hunter2" not in str(no.value)


def test_an_endpoint_that_swallows_everything_does_not_stop_the_others(
    etcd: Etcd, opened: Open
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{etcd.ports[0]}"
        store = opened(f"etcd://{hosts}/swallowed", patience=4)
        entry = store.put("job", b"", expect=0)
        assert store.watch("job").entries == {"job": entry}


def test_a_server_of_another_kind_is_told_apart(etcd: Etcd, opened: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(65536)
                line.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope")
                line.recv(1)

        with ThreadPoolExecutor(1) as thread:
            serving = thread.submit(serve_one)
            store = opened(f"etcd://127.0.0.1:{listener.getsockname()[1]}/x")
            with pytest.raises(StoreError, match=r"404 nope; wanted an etcd"):
                store.get("job")
            store.close()
            serving.result(SOON)


# ------------------------------------------------------------------- answers that are lost


def test_a_write_whose_answer_was_lost_happened_once(proxy: LossyProxy, opened: Open) -> None:
    store = opened(through(proxy, "lost-put"))
    first = store.put("job", b"1", expect=0)
    proxy.losing = True
    second = store.put("job", b"2", expect=first.version)
    proxy.losing = True
    third = store.put("job", b"3", expect=None)
    assert proxy.lost == 2
    assert first.version + 1 == second.version == third.version - 1
    assert store.get("job") == third


def test_a_refusal_whose_answer_was_lost_stays_a_refusal(proxy: LossyProxy, opened: Open) -> None:
    store = opened(through(proxy, "lost-conflict"))
    entry = store.put("job", b"1", expect=0)
    proxy.losing = True
    with pytest.raises(Conflict) as refusal:
        store.put("job", b"1", expect=0)  # the same bytes: only the receipt tells whose they are
    assert refusal.value.current == entry
    assert proxy.lost == 1


def test_a_delete_whose_answer_was_lost_happened_once(proxy: LossyProxy, opened: Open) -> None:
    store = opened(through(proxy, "lost-delete"))
    entry = store.put("job", b"1", expect=0)
    proxy.losing = True
    store.delete("job", expect=entry.version)
    assert proxy.lost == 1
    assert store.get("job") is None


def test_every_other_call_is_asked_again(proxy: LossyProxy, opened: Open) -> None:
    store = opened(through(proxy, "lost-calls"))
    store.put("job", b"1", expect=0)
    lease = store.lease(600)
    for call in (
        lambda: store.get("job"),
        lambda: store.watch("job"),
        lambda: store.lease(600).release(),
        lease.renew,
        lease.release,
    ):
        proxy.losing = True
        call()
    assert proxy.lost == 5


# -------------------------------------------------------------------- what lies in etcd


def test_entries_lie_under_the_prefix_and_receipts_run_out(etcd: Etcd, opened: Open) -> None:
    opened(etcd.url("plain/prefix")).put("jobs/a", b"value", expect=0)
    port = etcd.ports[0]
    everything = {"key": encode(b"/plain/prefix"), "range_end": encode(b"/plain/prefix0")}
    entry, receipt = etcd.ask(port, "/v3/kv/range", everything)["kvs"]
    assert entry["key"] == encode(b"/plain/prefix/jobs/a")
    assert entry["value"] == encode(b"value")
    lease = etcd.ask(port, "/v3/lease/timetolive", {"ID": receipt["lease"]})
    assert 0 < int(lease["TTL"]) < 3600


def test_a_server_that_lost_what_it_had_confirmed_is_told(etcd: Etcd, opened: Open) -> None:
    store = opened(etcd.url("forgetful"))
    store.put("job", b"1", expect=0)
    store.put("job", b"2", expect=None)
    everything = {"key": encode(b"/forgetful"), "range_end": encode(b"/forgetful1")}
    _, receipt = etcd.ask(etcd.ports[0], "/v3/kv/range", everything)["kvs"]
    etcd.ask(etcd.ports[0], "/v3/kv/deleterange", {"key": receipt["key"]})
    etcd.ask(etcd.ports[0], "/v3/kv/put", {"key": receipt["key"], "value": receipt["value"]})
    with pytest.raises(StoreUnavailable, match="lost a write that it had confirmed"):
        store.put("job", b"3", expect=None)


def test_prefixes_do_not_see_each_other(etcd: Etcd, opened: Open) -> None:
    opened(etcd.url("team")).put("job", b"", expect=0)
    for prefix in ("team2", "tea", "team/job"):
        assert opened(etcd.url(prefix)).watch("").entries == {}


# ------------------------------------------------------------------- passwords and TLS


def test_a_user_with_a_password_is_let_in_and_nobody_else(
    start_etcd: StartEtcd, opened: Open
) -> None:
    server = start_etcd()
    port = server.ports[0]
    server.ask(port, "/v3/auth/user/add", {"name": "root", "password": "p@ss"})
    server.ask(port, "/v3/auth/role/add", {"name": "root"})
    server.ask(port, "/v3/auth/user/grant", {"user": "root", "role": "root"})
    server.ask(port, "/v3/auth/enable", {})
    store = opened(server.url(credentials="root:p%40ss@"))
    entry = store.put("job", b"", expect=0)
    with pytest.raises(StoreError, match="authentication failed") as refusal:
        opened(server.url(credentials="root:hunter2@")).get("job")
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(StoreError, match="user name is empty"):
        opened(server.url()).get("job")
    server.kill()
    server.start()
    assert store.get("job") == entry  # though a restarted server has forgotten who was let in


def test_a_certificate_is_checked_against_the_authority_that_was_named(
    start_etcd: StartEtcd, opened: Open
) -> None:
    server = start_etcd(tls=True)
    store = opened(f"{server.url()}?ca={server.certificate()}")
    entry = store.put("job", b"", expect=0)
    assert store.watch("job").entries == {"job": entry}
    before = store.watch("job")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(store.watch, "job", after=before, timeout=2 * SOON)
        store.close()
        with pytest.raises(StoreError, match="closed"):
            waiting.result(SOON)
    with pytest.raises(StoreError, match="certificate is not trusted"):
        opened(server.url()).get("job")


def test_a_server_that_wants_a_certificate_lets_in_whoever_has_one(
    start_etcd: StartEtcd, opened: Open, tmp_path: Path
) -> None:
    own, other = Authority(tmp_path / "own"), Authority(tmp_path / "other")
    for authority in (own, other):
        authority.create()
    shown = own.issue("server", "etcd")
    server = start_etcd(
        tls=True,
        options=(
            *("--cert-file", str(shown[0]), "--key-file", str(shown[1])),
            *("--client-cert-auth", "--trusted-ca-file", str(own.certificate)),
        ),
    )

    def as_one_of(authority: Authority) -> Store:
        cert, key = authority.issue("client", "midflight")
        return opened(f"{server.url()}?ca={own.certificate}&cert={cert}&key={key}", patience=2)

    entry = as_one_of(own).put("job", b"", expect=0)
    for stranger in (as_one_of(other), opened(f"{server.url()}?ca={own.certificate}", patience=2)):
        with pytest.raises(StoreError, match=r"certificate with \?cert=FILE"):
            stranger.get("job")
    assert as_one_of(own).get("job") == entry
