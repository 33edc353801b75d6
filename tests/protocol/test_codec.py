"""The codec: every message comes back as it went, and everything else is refused by its place."""

import dataclasses
import enum
import json
import types
import typing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midflight.coordinator.core.state import Phase, Request, initial
from midflight.coordinator.saved_state import Saved
from midflight.errors import ProtocolError
from midflight.protocol import codec
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import REGISTRY, Form, ResizeRequested, StartMember
from midflight.protocol.wire import decode_body, encode_frame
from midflight.protocol.world import Member, World

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=8)  # hypothesis makes no surrogates


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field, from its type hint."""
    plain = {str: TEXT, int: st.integers(), float: NUMBERS, bool: st.booleans()}
    if hint in plain:
        return plain[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(a for a in arguments if a is not types.NoneType)
        return st.none() | values_of(inner)
    if origin in (tuple, frozenset):
        some = st.lists(values_of(arguments[0]), max_size=3)
        return some.map(tuple if origin is tuple else frozenset)
    if origin is dict:
        return st.dictionaries(TEXT, values_of(arguments[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    hints = typing.get_type_hints(hint)
    return st.builds(hint, **{f.name: values_of(hints[f.name]) for f in dataclasses.fields(hint)})


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_every_message_comes_back_as_it_went(kind: str) -> None:
    @settings(max_examples=15, deadline=None, database=None)
    @given(values_of(REGISTRY[kind]))
    def roundtrip(message: Any) -> None:
        frame = encode_frame(message)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert decode_body(frame[4:]) == message

    roundtrip()


def test_the_vocabulary_holds_messages_and_no_parts_of_them() -> None:
    assert {"Form", "Hello", "MemberReady", "Status"} <= set(REGISTRY)
    assert not {"World", "Member", "RunningMember", "MemberStatus", "HostStatus"} & set(REGISTRY)


def test_a_saved_state_comes_back_as_it_went() -> None:
    state = initial(JobSpec("job", ("python", "träin.py"), 2, 1, 4), 5.0)
    saved = Saved(1, 1.5, 2.5, dataclasses.replace(state, queue=(Request(None, 9.0, to=3),)))
    assert codec.decode(Saved, codec.loads(codec.dumps(saved))) == saved


# --- what is refused --------------------------------------------------------------------------

WORLD = {"generation": 1, "members": [{"name": "a", "host": "h", "slot": 0, "address": "x"}]}
RESIZE = {"to": 3, "add": 0, "remove": 0, "names": [], "timeout": 1.5}


def changed(**changes: object) -> dict[str, object]:
    return {**RESIZE, **changes}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (changed(extra=1), "ResizeRequested: unknown field 'extra'"),
        ({"to": 3}, "ResizeRequested: field 'add' is missing"),
        ([], "ResizeRequested: wanted an object, got []"),
        (None, "ResizeRequested: wanted an object, got None"),
        (changed(add="1"), "ResizeRequested.add: wanted int, got '1'"),
        (changed(add=True), "ResizeRequested.add: wanted int, got True"),
        (changed(add=1.0), "ResizeRequested.add: wanted int, got 1.0"),
        (changed(add=None), "ResizeRequested.add: wanted int, got None"),
        (changed(names="m1"), "ResizeRequested.names: wanted a list, got 'm1'"),
        (changed(names=["m1", 2]), "ResizeRequested.names[1]: wanted str, got 2"),
        (changed(names={}), "ResizeRequested.names: wanted a list, got {}"),
        (changed(timeout="1"), "ResizeRequested.timeout: wanted float, got '1'"),
        (changed(timeout=False), "ResizeRequested.timeout: wanted float, got False"),
        (changed(timeout=float("nan")), "ResizeRequested.timeout: wanted float, got nan"),
        (changed(timeout=float("inf")), "ResizeRequested.timeout: wanted float, got inf"),
        (changed(timeout=10**400), "ResizeRequested.timeout: wanted float, got 1000"),
        (changed(names=["\ud800"]), "ResizeRequested.names[0]: wanted str, got '\\ud800'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(body: object, words: str) -> None:
    with pytest.raises(ProtocolError) as error:
        codec.decode(ResizeRequested, body)
    assert str(error.value).startswith(words)


def test_a_place_deep_inside_is_named() -> None:
    damaged = json.loads(json.dumps({"world": WORLD}))
    damaged["world"]["members"][0]["slot"] = "0"
    with pytest.raises(ProtocolError, match=r"Form\.world\.members\[0\]\.slot: wanted int"):
        codec.decode(Form, damaged)


def test_keys_of_an_object_are_text_and_its_values_are_checked() -> None:
    good = codec.encode(StartMember("m0", 0, ("a",), "run", 1.0, 1.0, "", {"A": "b"}))
    assert codec.decode(StartMember, good).environment == {"A": "b"}
    with pytest.raises(ProtocolError, match=r"StartMember\.environment\.A: wanted str, got 1"):
        codec.decode(StartMember, {**good, "environment": {"A": 1}})
    with pytest.raises(ProtocolError, match="wanted str"):
        codec.decode(StartMember, {**good, "environment": {"\udfff": "b"}})


def test_a_whole_number_will_do_for_a_float_and_becomes_one() -> None:
    decoded = codec.decode(ResizeRequested, changed(timeout=2))
    assert decoded.timeout == 2.0 and isinstance(decoded.timeout, float)


def test_an_unknown_word_of_a_list_of_words_is_refused_with_those_there_are() -> None:
    @dataclasses.dataclass(frozen=True)
    class Report:
        phase: Phase

    globals()["Report"] = Report
    assert codec.decode(Report, {"phase": "stable"}).phase is Phase.STABLE
    with pytest.raises(ProtocolError, match=r"Report\.phase: wanted one of \['ending'"):
        codec.decode(Report, {"phase": "sleeping"})
    with pytest.raises(ProtocolError, match="wanted one of"):
        codec.decode(Report, {"phase": ["stable"]})


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"nul", b'{"a": 1} x', b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="wanted JSON"):
        codec.loads(data)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "wanted a frame with a type and a body"),
        (b'{"type": "Form"}', "wanted a frame with a type and a body"),
        (b'{"type": "Form", "body": {}, "more": 1}', "wanted a frame with a type and a body"),
        (b'{"type": "World", "body": {}}', "unknown message type 'World'"),
        (b'{"type": "__import__", "body": {}}', "unknown message type '__import__'"),
        (b'{"type": 7, "body": {}}', "unknown message type 7"),
        (b'{"type": {}, "body": {}}', "unknown message type {}"),
    ],
)
def test_a_frame_of_another_kind_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(ProtocolError) as error:
        decode_body(body)
    assert words in str(error.value)


def test_an_error_never_repeats_more_than_a_line_of_what_came() -> None:
    with pytest.raises(ProtocolError) as error:
        codec.decode(ResizeRequested, changed(names="x" * 10_000))
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), {1, 2}])
def test_what_could_not_be_read_is_not_written(value: object) -> None:
    with pytest.raises(ProtocolError, match="cannot be sent"):
        codec.dumps({"value": value})


def test_sets_are_written_in_order_so_that_equal_states_are_equal_bytes() -> None:
    assert codec.dumps(frozenset("cab")) == b'["a","b","c"]'


def test_a_world_is_written_with_its_members_alone() -> None:
    world = World(2, (Member("m0", "h0", 0, "10.0.0.1"),))
    assert world.names and world.rank("m0") == 0  # what is kept for speed must not be sent
    assert set(codec.encode(world)) == {"generation", "members"}
