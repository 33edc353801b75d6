import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from midflight.errors import StateError
from midflight.runtime.state import channel, transfer
from midflight.runtime.state.holdings import Holdings
from midflight.runtime.state.layout import Layout, Snapshot, layout_of
from midflight.runtime.state.relay import relay
from midflight.runtime.state.transfer import receive, receive_layout, send, send_layout
from tests.runtime.handing import gloo, hand_over, refused, same_bits, together
from tests.runtime.trainee import Trainee


@pytest.fixture(scope="module")
def groups() -> list[Any]:
    return gloo()


def test_what_was_prepared_is_used_and_the_layout_is_not_sent_again(groups: list[Any]) -> None:
    giver, taker = Trainee("Adam"), Trainee("Adam", seed=1)
    giver.step(0)
    room = taker.holdings.prepare(giver.holdings.capture({}).layout)
    addresses = [tensor.data_ptr() for tensor in room.tensors]
    giver.step(1)
    snapshot = giver.holdings.capture({"cursor": 2})
    _, received = together(
        lambda: send(groups[0], 1, snapshot),
        lambda: receive(groups[1], 0, taker.holdings, room),
    )
    assert [tensor.data_ptr() for tensor in received.tensors] == addresses
    assert taker.holdings.restore(received) == {"cursor": 2}
    kept = [t.data_ptr() for s in taker.optimizer.state.values() for t in s.values()]
    assert set(kept) <= set(addresses)
    assert same_bits(taker.state(), giver.state())


def test_room_made_for_another_layout_is_replaced_on_the_spot_and_used_where_it_fits(
    groups: list[Any],
) -> None:
    giver, taker = Trainee("Adam"), Trainee("Adam", seed=1)
    giver.step(0)
    room = taker.holdings.prepare(giver.holdings.capture({}).layout)
    giver.holdings.values["history"] = torch.arange(1000)  # not there when room was made
    snapshot = giver.holdings.capture({})
    _, received = together(
        lambda: send(groups[0], 1, snapshot),
        lambda: receive(groups[1], 0, taker.holdings, room),
    )
    taker.holdings.restore(received)
    assert same_bits(taker.state(), giver.state())
    assert torch.equal(taker.holdings.values["history"], torch.arange(1000))
    fresh = {id(t) for t in received.tensors} - {id(t) for t in room.tensors}
    assert len(fresh) == 1


def test_without_preparation_the_layout_comes_with_the_state(groups: list[Any]) -> None:
    giver, taker = Trainee("AdamW"), Trainee("AdamW", seed=1)
    giver.step(0)
    _, extra = hand_over(groups, giver.holdings, taker.holdings, extra={"step": 1}, prepare=False)
    assert extra == {"step": 1}
    assert same_bits(taker.state(), giver.state())


def test_what_has_been_moved_is_counted(groups: list[Any]) -> None:
    before = channel.bytes_moved()
    hand_over(groups, Holdings({}, {"x": torch.ones(1 << 20)}), Holdings({}))
    assert channel.bytes_moved() - before >= 2 * 4 * 1024 * 1024, "sent, and received"


def test_large_tensors_go_in_several_messages_and_small_ones_in_several_bundles(
    groups: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MESSAGE", 1000)
    monkeypatch.setattr(transfer, "LARGE", 2500)
    monkeypatch.setattr(transfer, "BUNDLE", 4000)
    values = {
        str(number): torch.rand(size).to(dtype)
        for number, (size, dtype) in enumerate(
            itertools.product((0, 1, 100, 600, 5000), (torch.float32, torch.bfloat16, torch.int64))
        )
    }
    taker = Holdings({})
    hand_over(groups, Holdings({}, values), taker)
    assert same_bits(taker.values, values)


@pytest.mark.parametrize("size", [6, 400_000])
def test_tensors_of_all_kinds_survive(groups: list[Any], size: int) -> None:
    base = torch.randn(2, size)
    values = {
        "transposed": base.t(),
        "sliced": base[:, ::2],
        "offset": base[1],
        "expanded": torch.arange(3.0).expand(size, 3),
        "channels last": torch.randn(2, 3, size, 1).to(memory_format=torch.channels_last),
        "empty": torch.empty(0, 5),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "bool": base[0] > 0,
        "half": base.half(),
        "bf16": base.bfloat16(),
        "complex": torch.complex(base, base),
        "float8": base.to(torch.float8_e4m3fn),
        "uint16": torch.ones(size, dtype=torch.uint16),
        "with grad": base.clone().requires_grad_(),
    }
    taker = Holdings({})
    hand_over(groups, Holdings({}, values), taker)
    assert same_bits(taker.values, values)
    assert taker.values["channels last"].stride() == values["channels last"].stride()


def test_the_state_is_handed_on_by_those_who_got_it_in_log_rounds() -> None:
    groups = gloo(4)
    trainees = [Trainee("Adam", seed=seed) for seed in range(4)]
    trainees[0].step(0)
    rounds = relay([0], [1, 2, 3])

    def member(rank: int) -> None:
        snapshot = None if rank else trainees[0].holdings.capture({"step": 1})
        for source, target in itertools.chain.from_iterable(rounds):
            if rank == source and snapshot is not None:
                send(groups[rank], target, snapshot)
            elif rank == target:
                snapshot = receive(groups[rank], source, trainees[rank].holdings)
        assert snapshot is not None
        if rank:
            trainees[rank].holdings.restore(snapshot)

    together(*(lambda rank=rank: member(rank) for rank in range(4)))
    for trainee in trainees[1:]:
        assert same_bits(trainee.state(), trainees[0].state())


def test_a_layout_can_be_sent_while_the_state_of_another_is_under_way(groups: list[Any]) -> None:
    giver, taker = Trainee("Adam"), Trainee("Adam", seed=1)
    snapshot = giver.holdings.capture({})
    *_, layout = together(
        lambda: send(groups[0], 1, snapshot),
        lambda: receive(groups[1], 0, taker.holdings),
        lambda: send_layout(groups[0], 1, snapshot.layout),
        lambda: receive_layout(groups[1], 0),
    )
    assert layout == snapshot.layout
    assert layout.fingerprint == snapshot.layout.fingerprint


def test_a_group_made_for_ddp_serves_as_well_as_a_bare_backend(groups: list[Any]) -> None:
    wrapped = []
    for rank, backend in enumerate(groups):
        group = dist.ProcessGroup(dist.HashStore(), rank, 2)
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
        wrapped.append(group)
    assert channel.carried(wrapped[0]) == {"cpu"} == channel.carried(groups[0])
    giver, taker = Trainee("SGD"), Trainee("SGD", seed=1)
    hand_over(wrapped, giver.holdings, taker.holdings)
    assert same_bits(taker.state(), giver.state())


class DeviceOnly:
    """A group that claims to carry CUDA memory only, so that all of the CPU's has to be staged."""

    def __init__(self, group: Any) -> None:
        self.send, self.recv = group.send, group.recv

    def name(self) -> str:
        return "nccl"


@pytest.fixture
def staged(groups: list[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    monkeypatch.setattr(channel, "MESSAGE", 1000)
    stages = [[torch.empty(1000, dtype=torch.uint8) for _ in range(4)] for _ in range(4)]
    monkeypatch.setattr(channel, "_idle_stages", {frozenset({"cuda"}): stages})
    yield [DeviceOnly(group) for group in groups]
    assert len(stages) == 4  # all were given back


def test_memory_that_the_group_does_not_carry_passes_through_stages(staged: list[Any]) -> None:
    values = {"large": torch.randn(300_000), "small": torch.randn(7), "odd": torch.randn(1001)}
    taker = Holdings({})
    hand_over(staged, Holdings({}, values), taker)
    assert same_bits(taker.values, values)


def test_a_state_too_large_for_json_is_refused_on_both_sides(
    groups: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = Holdings({}, {"text": "x" * 100_000}).capture({})
    monkeypatch.setattr(transfer, "LIMIT", 50_000)
    errors = together(
        lambda: refused(lambda: send(groups[0], 1, snapshot)),
        lambda: refused(lambda: receive(groups[1], 0, Holdings({}))),
    )
    for error in errors:
        assert "bytes outside of its tensors, and at most 50000 can be handed" in error


def test_another_version_of_the_transfer_is_refused(groups: list[Any]) -> None:
    def outdated() -> None:
        old = transfer.HELLO.pack(b"midfl-00", bytes(32))
        hello = channel.Channel(groups[1], 0, "send", transfer.TRANSFER_TAG)
        hello.add(channel.bytes_to_tensor(old))
        hello.finish()

    snapshot = Holdings({}).capture({})
    error, _ = together(lambda: refused(lambda: send(groups[0], 1, snapshot)), outdated)
    assert "b'midfl-00' came; run the same version" in error


def test_a_peer_that_is_gone_shows_as_an_error_of_the_group() -> None:
    groups = gloo(seconds=0.5)
    with pytest.raises(RuntimeError):
        receive(groups[1], 0, Holdings({}))


def test_a_layout_survives_json_and_rubbish_is_refused() -> None:
    layout = layout_of([torch.zeros(2, 3).t(), torch.zeros((), dtype=torch.bool)], [("m", "a")])
    assert Layout.from_json(layout.to_json()) == layout
    assert layout.slots[0].home == ("m", "a")
    for rubbish in (
        "",
        "[1]",
        "{}x",
        '[["torch.load",[1],null,"cpu",null]]',
        '[["torch.bool",[-1],null,"cpu",null]]',
        '[["torch.bool",[4],[9],"cpu",null]]',
    ):
        with pytest.raises(StateError, match="not a layout of tensors"):
            Layout.from_json(rubbish)


def test_a_snapshot_is_only_references() -> None:
    trainee = Trainee("Adam")
    trainee.step(0)
    snapshot: Snapshot = trainee.holdings.capture({})
    live = [*trainee.model.parameters()]
    assert [id(t) for t in snapshot.tensors[: len(live)]] == [id(t) for t in live]
