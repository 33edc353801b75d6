import math
import struct
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from midflight.errors import StateError
from midflight.runtime.state.tree import pack, unpack

ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS | st.tuples(KEYS, KEYS), inner)
        | st.dictionaries(st.text(), inner).map(OrderedDict)
        | st.sets(ATOMS)
        | st.frozensets(ATOMS)
        | st.dictionaries(KEYS, st.integers()).map(Counter)
    ),
    max_leaves=20,
)


def back(tree: object) -> Any:
    packed = pack(tree)
    return unpack(packed.blob, packed.tensors)


@given(TREES)
def test_plain_trees_come_back_as_they_went(tree: object) -> None:
    assert repr(back(tree)) == repr(tree) or back(tree) == tree


@pytest.mark.parametrize(
    "value",
    [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, -math.nan],
    ids=repr,
)
def test_a_float_keeps_every_bit(value: float) -> None:
    assert struct.pack(">d", back(value)) == struct.pack(">d", value)


def test_an_integer_may_have_any_number_of_digits() -> None:
    assert back(-(7**9000)) == -(7**9000)


def test_dicts_keep_their_order_and_the_types_of_their_keys() -> None:
    tree = {2: "b", 1: "a", "1": "c", None: 0, (1, ("x", 2.5)): [], "$tensor": 1, 0.5: True}
    assert list(back(tree).items()) == list(tree.items())
    assert [type(key) for key in back(tree)] == [type(key) for key in tree]


def test_a_user_s_dict_that_looks_like_a_tag_is_no_tag() -> None:
    assert back({"$tuple": [1]}) == {"$tuple": [1]}


@pytest.mark.parametrize(
    "value",
    [
        OrderedDict(b=1, a=2),
        Counter({3: 2}),
        torch.Size([2, 3]),
        torch.bfloat16,
        torch.device("cuda", 3),
        {1, 2},
        frozenset({"a"}),
        numpy.float64(1.5),
        numpy.int32(-3),
        numpy.datetime64("2024-02-29"),
        "\ud800 is no character",
        b"\x00\xff",
    ],
    ids=repr,
)
def test_the_type_comes_back_too(value: object) -> None:
    assert back([value]) == [value]
    assert type(back(value)) is type(value)


def test_a_defaultdict_comes_back_without_its_factory() -> None:
    assert back(defaultdict(list, a=[1])) == {"a": [1]}


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(6.0).reshape(2, 3).T,
        numpy.zeros((0, 4), dtype=">i2"),
        numpy.array(3.5),
        numpy.array(["a", "bcd"]),
        numpy.array([True, False]),
        numpy.broadcast_to(numpy.arange(3), (2, 3)),
    ],
    ids=repr,
)
def test_numpy_arrays_come_back_equal(array: Any) -> None:
    arrived = back({"a": array})["a"]
    assert arrived.dtype == array.dtype
    assert arrived.shape == array.shape
    assert (arrived == array).all()


def test_tensors_are_referred_to_and_not_copied() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    packed = pack({"a": [weight], "b": torch.zeros(2)})
    assert packed.tensors[0] is weight
    assert unpack(packed.blob, packed.tensors)["a"][0] is weight


def test_two_references_to_one_tensor_stay_one_tensor() -> None:
    tensor = torch.ones(3)
    packed = pack([tensor, {"again": tensor}, tensor.view(3), tensor[:2]])
    first, second, third, part = unpack(packed.blob, [t.clone() for t in packed.tensors])
    assert first is second["again"] is third
    assert part is not first
    assert len(packed.tensors) == 2


def test_known_tensors_come_first_in_their_order() -> None:
    one, two, new = torch.ones(1), torch.ones(2), torch.ones(3)
    packed = pack([new, two], known=[one, two])
    assert [t.numel() for t in packed.tensors] == [1, 2, 3]
    assert unpack(packed.blob, packed.tensors) == [new, two]


def test_empty_tensors_stay_apart() -> None:
    packed = pack([torch.empty(0), torch.empty(0, 3, dtype=torch.int64)])
    assert [t.shape for t in unpack(packed.blob, packed.tensors)] == [(0,), (0, 3)]


def test_a_conjugated_tensor_arrives_with_its_values() -> None:
    tensor = torch.tensor([1 + 2j])
    assert back([tensor, tensor.conj()])[1].item() == 1 - 2j


class Odd:
    pass


@pytest.mark.parametrize(
    ("tree", "path", "kind"),
    [
        ({"optimizer": {"state": {3: {"foo": Odd()}}}}, "optimizer.state[3].foo", "Odd"),
        ({"job.state": {"my list": [1, (2, Odd)]}}, "job.state['my list'][1][1]", "type"),
        ({"s": {"f": lambda: 0}}, "s.f", "function"),
        ({"s": {Odd(): 0}}, "s", "a dict with a key of type"),
        ({"s": OrderedDict(x=Odd())}, "s.x", "Odd"),
        ({"s": [numpy.array([Odd()])]}, "s[0]", "a numpy array of object"),
        ({"s": torch.eye(2).to_sparse()}, "s", "a sparse_coo tensor"),
        ({"s": torch.empty(2, device="meta")}, "s", "tensor on device meta"),
        (Odd(), "the state", "Odd"),
    ],
)
def test_what_cannot_travel_is_named_with_its_path(tree: object, path: str, kind: str) -> None:
    with pytest.raises(StateError) as caught:
        pack(tree)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert kind in message.partition(" cannot be handed to a newcomer; ")[0]
    assert "state_dict()" in message


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(StateError, match="contains itself"):
        pack({"loop": loop})


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xff",
        b"[1",
        b'{"$nope":1}',
        b'{"$tensor":5}',
        b'{"$dtype":"torch.load"}',
        b"[" * 9999,
    ],
)
def test_rubbish_is_refused_with_a_clear_error(blob: bytes) -> None:
    with pytest.raises(StateError, match="run the same version of Midflight on all members"):
        unpack(blob, [])
