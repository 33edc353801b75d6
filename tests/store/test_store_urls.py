"""From a URL to a store, and what is said about those that lead nowhere."""

from pathlib import Path

import pytest

from midflight.errors import UsageError
from midflight.store import open_store
from midflight.store.etcd_address import Endpoint, EtcdAddress, TlsFiles, parse_etcd_url


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
