"""Clusters as JSON, the rules for them, and other sizes of them."""

import json

import pytest

from midflight.compat.kungfu.cluster import Address, Cluster, loads, make
from midflight.errors import UsageError
from tests.kungfu.commands import cluster


def test_json_is_kungfus_with_addresses_as_numbers() -> None:
    runner, worker = '{"IPv4":2130706433,"Port":38080}', '{"IPv4":2130706433,"Port":10000}'
    text = f'{{"Runners":[{runner}],"Workers":[{worker}]}}'
    assert loads(text) == cluster("127.0.0.1:10000")
    assert loads(text).dumps() == text


def test_names_and_ipv6_stand_under_host() -> None:
    made = cluster("node-1:10000", "::1:10001")
    assert made.workers[1] == Address("::1", 10001)
    assert json.loads(made.dumps())["Workers"] == [
        {"IPv4": 0, "Port": 10000, "Host": "node-1"},
        {"IPv4": 0, "Port": 10001, "Host": "::1"},
    ]
    assert loads(made.dumps()) == made
    assert loads('{"Runners":[{"Host":"0:0::1","Port":1}]}').runners == (Address("::1", 1),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("[]", "Runners"),
        ("[" * 100_000, "no JSON"),
        ('{"Workers":3}', "Workers has to be a list"),
        ('{"Workers":[3]}', "Workers[0]"),
        ('{"Workers":[{"IPv4":1,"Port":0}]}', "port 0"),
        ('{"Workers":[{"IPv4":1,"Port":true}]}', "port True"),
        ('{"Workers":[{"IPv4":4294967296,"Port":1}]}', "IPv4 4294967296"),
        ('{"Workers":[{"IPv4":-1,"Port":1}]}', "IPv4 -1"),
        ('{"Workers":[{"Port":1}]}', "IPv4 None"),
        ('{"Workers":[{"Host":"a b","Port":1}]}', "host 'a b'"),
        ('{"Workers":[{"Host":["a"],"Port":1}]}', "host"),
        ('{"Workers":[{"IPv4":1,"Port":1}]}', "no runner on its host"),
        ('{"Runners":[{"IPv4":1,"Port":1},{"IPv4":1,"Port":2}]}', "two runners"),
        ('{"Runners":[{"IPv4":1,"Port":1},{"IPv4":1,"Port":1}]}', "twice"),
        ('{"Runners":[{"IPv4":1,"Port":1}],"Workers":[{"IPv4":1,"Port":1}]}', "twice"),
    ],
)
def test_what_is_no_cluster_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        loads(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_smaller_size_drops_the_last_and_a_larger_one_goes_where_there_are_fewest() -> None:
    made = make({"127.0.0.1": 2, "127.0.0.2": 2}, 3)
    assert [str(w) for w in made.workers] == [
        "127.0.0.1:10000",
        "127.0.0.1:10001",
        "127.0.0.2:10000",
    ]
    assert made.resized(2).workers == made.workers[:2]
    assert [str(w) for w in made.resized(5).workers[3:]] == ["127.0.0.2:10001", "127.0.0.1:10002"]
    assert made.resized(3) == made


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        cluster("127.0.0.1:10000").resized(0)
    with pytest.raises(UsageError, match="no place"):
        Cluster((), ()).resized(1)
    with pytest.raises(UsageError, match="3 workers were wanted, the hosts have 2 slots"):
        make({"127.0.0.1": 2}, 3)
