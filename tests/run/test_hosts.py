"""Hosts as users write them, and which of them are this machine."""

import socket
from pathlib import Path

import pytest

from midflight.errors import UsageError
from midflight.run.addresses import check_listen, is_local, member_address, reach
from midflight.run.hosts import parse_hosts, parse_listing, read_hostfile


def test_hosts_keep_their_order_and_take_the_default_where_slots_are_missing() -> None:
    hosts = parse_hosts("node-2:4, node-1 ,10.0.0.7:1", default_slots=3)
    assert list(hosts.items()) == [("node-2", 4), ("node-1", 3), ("10.0.0.7", 1)]


@pytest.mark.parametrize("text", ["", "a:", ":2", "a:b", "a:0", "a:-1", "a:99999", "a b:1", "a,,b"])
def test_malformed_hosts_are_refused_with_what_came(text: str) -> None:
    with pytest.raises(UsageError, match=r"-H wants HOST:SLOTS"):
        parse_hosts(text, default_slots=1)


def test_a_host_that_comes_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="a came twice"):
        parse_hosts("a:1,b:1,a:2", default_slots=1)


def test_a_hostfile_may_be_written_in_either_way(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode1 slots=4\nnode2:2  # the old one\n\nnode3\nnode4   slots = 8\n")
    hosts = read_hostfile(str(path), default_slots=1)
    assert hosts == {"node1": 4, "node2": 2, "node3": 1, "node4": 8}


@pytest.mark.parametrize("text", ["node1 slots=\n", "node1 cores=4\n", "node1 slots=0\n", "\x00"])
def test_a_malformed_hostfile_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(UsageError, match=f"hostfile {path}: wanted `HOST slots=N` or `HOST:N`"):
        read_hostfile(str(path), default_slots=1)


def test_an_empty_hostfile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# nothing yet\n")
    with pytest.raises(UsageError, match="names no host"):
        read_hostfile(str(path), default_slots=1)


def test_a_listing_may_be_empty() -> None:
    assert parse_listing("", default_slots=1) == {}
    assert parse_listing("a\n\nb:2\n", default_slots=4) == {"a": 4, "b": 2}


def test_this_machine_has_several_names() -> None:
    assert is_local("localhost")
    assert is_local("127.0.0.1")
    assert is_local("127.8.9.10")
    assert is_local(socket.gethostname())
    assert not is_local("node7.example")
    assert not is_local("192.0.2.1")  # reserved, nobody has it


def test_members_are_announced_where_those_that_need_to_can_reach_them() -> None:
    assert member_address("localhost", outer=None) == "127.0.0.1"
    assert member_address("127.0.0.3", outer=None) == "127.0.0.3"
    assert member_address("localhost", outer="10.0.0.5") == "10.0.0.5"
    assert member_address("127.0.0.3", outer="10.0.0.5") == "10.0.0.5"
    assert member_address("10.0.0.6", outer="10.0.0.5") == "10.0.0.6"
    assert member_address("no-such-host.invalid", outer=None) == "127.0.0.1"


def test_a_coordinator_on_loopback_is_reached_from_here_only() -> None:
    assert reach("127.0.0.1:70", None).here == "127.0.0.1:70"
    assert reach("127.0.0.1:70", None).outer is None
    everywhere = reach("0.0.0.0:70", "127.0.0.9")
    assert everywhere.here == "127.0.0.1:70"
    assert everywhere.there == f"{everywhere.outer}:70"
    assert reach("[::]:70", None).here == "[::1]:70"
    assert reach("10.1.2.3:70", None).there == "10.1.2.3:70"


def test_where_to_listen_is_a_host_and_a_port() -> None:
    assert check_listen("127.0.0.1:0") == "127.0.0.1:0"
    assert check_listen("[::1]:70") == "::1:70"
    for text in ("", "70", ":70", "host:", "host:port", "host:70000"):
        with pytest.raises(UsageError, match="--listen wants HOST:PORT"):
            check_listen(text)
