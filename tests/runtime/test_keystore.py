"""The store through which groups find together: which keys it asks for, and when."""

from collections.abc import Sequence
from typing import Any

from torch._C import _distributed_c10d as c10d

from midflight.runtime.group.keystore import NCCL_KEYS, KeyStore
from midflight.runtime.group.process_group import connect_seconds


class Line:
    """The coordinator's side, which has every key; it writes down what was wanted at once."""

    def __init__(self) -> None:
        self.wanted: list[list[str]] = []
        self.patience: list[float] = []

    def set_key(self, generation: int, key: str, value: str) -> None:
        pass

    def add_key(self, generation: int, key: str, amount: int, timeout: float) -> int:
        self.patience.append(timeout)
        return amount

    def want_keys(self, generation: int, keys: Sequence[str], timeout: float) -> Sequence[str]:
        self.wanted.append(list(keys))
        self.patience.append(timeout)
        return ["aGk="] * len(keys)

    def want_rank_keys(
        self, generation: int, prefix: str, size: int, timeout: float
    ) -> Sequence[str]:
        return self.want_keys(generation, [f"{prefix}{rank}" for rank in range(size)], timeout)


def test_keys_of_all_ranks_are_fetched_with_the_first_of_them() -> None:
    line = Line()
    store: Any = KeyStore(line, 1, 3, 5.0)
    through = c10d.PrefixStore("0", store)  # as gloo asks
    assert [through.get(str(rank)) for rank in range(3)] == [b"hi"] * 3
    assert line.wanted == [["0/0", "0/1", "0/2"]]


def test_the_numbers_in_the_keys_of_nccl_are_not_ranks() -> None:
    line = Line()
    store: Any = KeyStore(line, 1, 3, 5.0)
    c10d.PrefixStore(NCCL_KEYS, store).get("0")
    assert line.wanted == [[f"{NCCL_KEYS}/0"]]


def test_a_group_of_one_scope_does_not_read_the_keys_of_another() -> None:
    line = Line()
    KeyStore(line, 1, 2, 5.0, scope="few").get("a")
    assert line.wanted == [["few/a"]]


def test_a_counter_is_waited_for_as_long_as_a_key() -> None:
    """Which is longer in a large world."""
    line = Line()
    store: Any = KeyStore(line, 1, 3, connect_seconds(4000))
    assert store.add("count", 2) == 2
    store.get("other")
    assert line.patience == [connect_seconds(4000)] * 2
