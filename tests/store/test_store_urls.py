"""From a URL to a store, and what is said about those that lead nowhere."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from midflight.errors import UsageError
from midflight.kubeconfig import authorization
from midflight.store import open_store
from midflight.store.etcd_address import Endpoint, EtcdAddress, TlsFiles, parse_etcd_url
from midflight.store.kubernetes_address import parse_kubernetes_url


@pytest.mark.parametrize("form", ["{}", "sqlite://{}", "sqlite:///{}"])
def test_a_path_is_a_store_in_a_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "my store.db"
    open_store(form.format(path)).close()
    assert path.exists()


def test_a_sqlite_url_may_be_percent_encoded(tmp_path: Path) -> None:
    open_store(f"sqlite://{tmp_path}/my%20store.db").close()
    assert (tmp_path / "my store.db").exists()


def test_a_relative_path_is_taken_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store(":memory:").close()  # SQLite's own word means nothing here
    assert (tmp_path / ":memory:").exists()


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        "redis://host:1",
        "sqlite://",
        "sqlite:///",
        "sqlite://relative.db",
        "sqlite:store.db",
        "etcd:host:2379",
        "etcd://",
        "etcd:///prefix",
        "etcd://host:port/",
        "etcd://host:0",
        "etcd://host:99999",
        "etcd://host,,other",
        "etcd://::1:2379",
        "etcd://[::1",
        "etcd://host?ca=x",
        "etcds://host?cart=x",
        "etcds://host?cert=x",
        "etcds://host?ca=/not/there.pem",
        "kubernetes:team/job",
        "kubernetes://",
        "kubernetes://team",
        "kubernetes://team/Job",
        "kubernetes://team/job/state",
        "kubernetes://team/job?kubeconfig=/not/there",
        "kubernetes://team/job?config=/not/there",
    ],
)
def test_a_url_that_leads_nowhere_is_refused_with_what_was_wanted(url: str) -> None:
    with pytest.raises(UsageError, match=r"^store URL: wanted .*got ") as refusal:
        open_store(url)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "url", ["redis://me:hunter2@host", "etcd://me:hunter2@", "etcd://me:hunter2@host:x"]
)
def test_a_refusal_keeps_the_password_to_itself(url: str) -> None:
    with pytest.raises(UsageError) as refusal:
        open_store(url)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("etcd://h", EtcdAddress((Endpoint("h", 2379),), "midflight")),
        ("etcd://h:1/", EtcdAddress((Endpoint("h", 1),), "midflight")),
        (
            "etcd://a:1,b,[::1]:3,[::2]/my/jobs/",
            EtcdAddress(
                (
                    Endpoint("a", 1),
                    Endpoint("b", 2379),
                    Endpoint("::1", 3),
                    Endpoint("::2", 2379),
                ),
                "my/jobs",
            ),
        ),
        (
            "etcds://me:p%40ss%2Fword@h:1/x?ca=/ca.pem&cert=/c.pem&key=/k.pem",
            EtcdAddress(
                (Endpoint("h", 1),),
                "x",
                "me",
                "p@ss/word",
                TlsFiles("/ca.pem", "/c.pem", "/k.pem"),
            ),
        ),
    ],
)
def test_an_etcd_url_names_endpoints_prefix_and_credentials(url: str, address: EtcdAddress) -> None:
    assert parse_etcd_url(url) == address


def test_an_address_is_shown_without_its_password() -> None:
    address = parse_etcd_url("etcd://me:hunter2@h:1,[::1]:2/x")
    assert "hunter2" not in repr(address)
    assert str(address) == "etcd at h:1, [::1]:2"


# --- kubernetes -----------------------------------------------------------------------------------


def kubeconfig(folder: Path, cluster: Mapping[str, object], user: Mapping[str, object]) -> Path:
    path = folder / "config.json"
    named = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    path.write_text(json.dumps({**named, "contexts": [context], "current-context": "x"}))
    return path


def test_a_kubeconfig_says_where_the_api_server_is_and_who_asks(tmp_path: Path) -> None:
    cluster = {"server": "https://[::1]:6443/clusters/a/", "certificate-authority": "ca.crt"}
    pair = {"client-certificate-data": "Y2VydA==", "client-key": "/keys/me.key"}
    path = kubeconfig(tmp_path, cluster, pair)
    address = parse_kubernetes_url(f"kubernetes://team/job-state?kubeconfig={path}")
    assert (address.namespace, address.name) == ("team", "job-state")
    assert str(address) == "ConfigMap team/job-state at [::1]:6443"
    assert (address.endpoint, address.base) == (Endpoint("::1", 6443), "/clusters/a")
    assert address.settings.cluster["certificate-authority"] == f"{tmp_path}/ca.crt"
    assert address.settings.user == pair


def test_a_token_is_sent_and_never_shown(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "http://h"}, {"token": "hunter2"})
    address = parse_kubernetes_url(f"kubernetes://team/job?kubeconfig={path}")
    assert authorization(address.settings.user) == {"Authorization": "Bearer hunter2"}
    assert "hunter2" not in repr(address)


@pytest.mark.parametrize(
    ("cluster", "user", "what"),
    [
        ({}, {}, "no 'server'"),
        ({"server": "h:1"}, {}, "a server https://HOST:PORT"),
        ({"server": "https://h"}, {"exec": {}}, "with exec"),
        ({"server": "https://h", "insecure-skip-tls-verify": True}, {}, "with insecure-skip"),
        ({"server": "https://h", "certificate-authority-data": "?"}, {}, "base64"),
        ({"server": "https://h", "certificate-authority": "/not/there"}, {}, "PEM files"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, cluster: Mapping[str, object], user: Mapping[str, object], what: str
) -> None:
    path = kubeconfig(tmp_path, cluster, user)
    with pytest.raises(UsageError, match=f"^store URL: wanted .*{what}") as refusal:
        open_store(f"kubernetes://team/job?kubeconfig={path}")
    assert "\n" not in str(refusal.value)


def test_a_kubeconfig_in_yaml_is_refused_with_the_way_to_make_one_in_json(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(UsageError, match=r"wanted a kubeconfig in JSON.*kubectl config view --raw"):
        open_store(f"kubernetes://team/job?kubeconfig={path}")


def test_outside_of_a_pod_the_way_to_name_a_cluster_is_told(tmp_path: Path) -> None:
    for environ in ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}):
        with pytest.raises(UsageError, match=r"^store URL: wanted a pod.*add \?kubeconfig=FILE"):
            parse_kubernetes_url("kubernetes://team/job", environ, tmp_path)
