"""What is special about the store on Kubernetes: its one ConfigMap, and who may touch it."""

import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from midflight.errors import Conflict, StoreError, StoreUnavailable
from midflight.store import Store
from midflight.store.kubernetes import KubernetesStore
from midflight.store.kubernetes_address import parse_kubernetes_url
from tests.kubernetes.plane.control import Plane
from tests.store.child import add_one
from tests.store.config_maps import (
    LAUNCHER,
    as_somebody,
    delete_config_map,
    make_config_map,
    name_in,
    read_config_map,
    with_server,
)
from tests.store.etcd_process import free_port
from tests.store.forgetful_proxy import ForgetfulProxy

pytestmark = pytest.mark.slow  # a real API server


SOON = 30.0


Open = Callable[..., Store]


@pytest.fixture
def url(plane: Plane) -> str:
    return make_config_map(plane)


@pytest.fixture
def proxy(plane: Plane) -> Iterator[ForgetfulProxy]:
    proxy = ForgetfulProxy(plane)
    yield proxy
    proxy.close()


# --- who may --------------------------------------------------------------------------------------


def test_a_role_for_this_one_config_map_is_enough(plane: Plane, url: str, opened: Open) -> None:
    ours, theirs = opened(as_somebody(plane, url, LAUNCHER)), opened(url)
    entry = ours.put("job", b"1", expect=0)
    before = ours.watch("job")
    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(ours.watch, "job", after=before, timeout=2 * SOON)
        written = theirs.put("job", b"2", expect=entry.version)
        assert watching.result(SOON).entries == {"job": written}


def test_whoever_may_not_watch_looks_again_and_again(plane: Plane, url: str, opened: Open) -> None:
    ours, theirs = opened(as_somebody(plane, url, ("get", "update"))), opened(url)
    before = ours.watch("job")
    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(ours.watch, "job", after=before, timeout=2 * SOON)
        written = theirs.put("job", b"", expect=0)
        assert watching.result(SOON).entries == {"job": written}


def test_whoever_may_not_write_is_told_so_in_one_line(plane: Plane, url: str, opened: Open) -> None:
    store = opened(as_somebody(plane, url, ("get",)))
    assert store.get("job") is None
    with pytest.raises(StoreError, match=r"not allowed \(.*cannot update.*role has to let") as no:
        store.put("job", b"", expect=0)
    assert "\n" not in str(no.value)


def test_a_token_that_is_not_known_is_told_in_one_line(
    plane: Plane, url: str, opened: Open, tmp_path: Path
) -> None:
    store = opened(with_server(plane, url, plane.server.url, tmp_path, token="hunter2"))
    with pytest.raises(StoreError, match="does not know this token") as no:
        store.get("job")
    assert "\n" not in str(no.value)
    assert "hunter2" not in str(no.value)


def test_a_config_map_that_is_not_there_is_told_in_one_line(
    plane: Plane, url: str, opened: Open
) -> None:
    store = opened(url)
    store.put("job", b"", expect=0)
    delete_config_map(plane, url)
    for call in (
        lambda: store.get("job"),
        lambda: store.put("job", b"", expect=None),
        lambda: store.watch("job", timeout=5),
        lambda: store.lease(1),
    ):
        with pytest.raises(StoreError, match=r"it is not there.*made with the job"):
            call()


def test_in_a_pod_the_service_account_is_used_and_its_token_read_anew(
    plane: Plane, url: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("not yet\n")
    (tmp_path / "ca.crt").write_bytes(plane.server.authority.read_bytes())
    host, port = plane.server.host, str(plane.server.port)
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    address = parse_kubernetes_url(url.partition("?")[0], environ, tmp_path)
    with KubernetesStore(address, patience=1) as store:
        with pytest.raises(StoreError, match="does not know this token"):
            store.get("job")
        token.write_text(f"{plane.api.access.token}\n")
        assert store.get("job") is None


# --- outages and lost answers ---------------------------------------------------------------------


def test_an_api_server_that_is_restarted_is_ridden_out(
    plane: Plane, url: str, opened: Open
) -> None:
    store = opened(url, patience=2 * SOON)
    entry = store.put("job", b"1", expect=0)
    lease = store.lease(1)
    store.put("agent", b"", expect=0, lease=lease)
    before = store.watch("job")
    with ThreadPoolExecutor(2) as threads:
        watching = threads.submit(store.watch, "job", after=before, timeout=3 * SOON)
        plane.stop_api_server()
        try:
            writing = threads.submit(store.put, "job", b"2", expect=entry.version)
        finally:
            plane.start_api_server()
        assert writing.result(SOON).value == b"2"
        assert watching.result(SOON).entries == {"job": writing.result()}
    lease.renew()  # nobody could, meanwhile


def test_an_api_server_that_is_not_there_is_told_in_one_line(
    plane: Plane, url: str, opened: Open, tmp_path: Path
) -> None:
    nowhere = with_server(plane, url, f"https://127.0.0.1:{free_port()}", tmp_path)
    with pytest.raises(StoreUnavailable, match=r"no answer.*refused.*check that") as no:
        opened(nowhere, patience=0.2).get("job")
    assert "\n" not in str(no.value)


def test_a_server_of_another_kind_is_told_apart(
    plane: Plane, url: str, opened: Open, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve_one() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(65536)
                line.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope")
                line.recv(1)

        with ThreadPoolExecutor(1) as thread:
            serving = thread.submit(serve_one)
            where = f"http://127.0.0.1:{listener.getsockname()[1]}"
            store = opened(with_server(plane, url, where, tmp_path))
            with pytest.raises(StoreError, match="nope; wanted a Kubernetes API server"):
                store.get("job")
            store.close()
            serving.result(SOON)


def test_a_write_whose_answer_was_lost_happened_once(
    plane: Plane, url: str, opened: Open, proxy: ForgetfulProxy, tmp_path: Path
) -> None:
    store = opened(with_server(plane, url, proxy.url, tmp_path))
    first = store.put("job", b"1", expect=0)
    proxy.losing = 1
    second = store.put("job", b"2", expect=first.version)
    proxy.losing = 2
    third = store.put("job", b"3", expect=None)
    assert first.version + 1 == second.version == third.version - 1
    assert store.get("job") == third
    proxy.losing = 1
    store.delete("job", expect=third.version)
    assert store.get("job") is None
    proxy.losing = 1
    store.lease(600).release()
    assert proxy.losing == 0


def test_a_count_stays_exact_though_answers_are_lost(
    plane: Plane, url: str, opened: Open, proxy: ForgetfulProxy, tmp_path: Path
) -> None:
    store = opened(with_server(plane, url, proxy.url, tmp_path))

    def count(_: int) -> None:
        for _ in range(5):
            proxy.losing = 1
            add_one(store, "count")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(count, range(3)))
    assert store.get("count").value == b"15"  # type: ignore[union-attr]


# --- what lies in the ConfigMap -------------------------------------------------------------------


def test_entries_lie_under_their_keys_and_the_rest_stays_as_it_was(
    plane: Plane, opened: Open
) -> None:
    url = make_config_map(plane, labels={"whose": "theirs"})
    before = read_config_map(plane, url)["metadata"]
    opened(url).put("jobs/a", b"value", expect=0)
    after = read_config_map(plane, url)
    assert list(after["binaryData"]) == ["jobs_2Fa"]
    assert (after["metadata"]["labels"], after["metadata"]["uid"]) == (
        before["labels"],
        before["uid"],
    )


def test_what_does_not_fit_into_a_config_map_is_refused_and_harms_nothing(
    url: str, opened: Open
) -> None:
    store = opened(url)
    noise = random.Random(1).randbytes(600_000)
    first = store.put("a", noise, expect=0)
    with pytest.raises(StoreError, match=r"at most 1048576 bytes.*got 12\d+ after compr") as no:
        store.put("b", noise, expect=0)
    assert "\n" not in str(no.value)
    assert store.watch("").entries == {"a": first}


def test_a_config_map_that_somebody_else_wrote_to_is_not_believed(
    plane: Plane, url: str, opened: Open
) -> None:
    path = f"/api/v1/namespaces/stores/configmaps/{name_in(url)}"
    config_map = read_config_map(plane, url) | {"data": {"_index": "{}"}}
    plane.api.call("PUT", path, config_map)
    with pytest.raises(StoreError, match="somebody else has written to it"):
        opened(url).get("job")


def test_a_config_map_that_was_made_anew_is_another_store(
    plane: Plane, url: str, opened: Open
) -> None:
    store = opened(url)
    entry = store.put("job", b"1", expect=0)
    delete_config_map(plane, url)
    config_map = {"metadata": {"name": name_in(url)}}
    plane.api.call("POST", "/api/v1/namespaces/stores/configmaps", config_map)
    with pytest.raises(Conflict):
        store.put("job", b"2", expect=entry.version)


def test_many_who_write_different_keys_all_get_through(url: str, opened: Open) -> None:
    start = threading.Barrier(4)

    def write(number: int) -> None:
        store = opened(url)
        start.wait(SOON)
        for turn in range(10):
            store.put(f"key/{number}/{turn}", b"", expect=0)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert len(opened(url).watch("key/").entries) == 40
