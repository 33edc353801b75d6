"""Gradients of two members in two threads, with real groups: what a lost member leaves behind."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from midflight.errors import UsageError, WorldChanged
from midflight.runtime import torch_private
from midflight.runtime.data.plan import Extent, Seat
from midflight.runtime.data.sampler import Issued
from midflight.runtime.data.schedule import Ticket
from midflight.runtime.gradients.ddp import GradientSync
from midflight.runtime.group.process_group import Group
from tests.runtime.keys import Keys, world

SECONDS = 30.0
BUCKETS = 3  # of the model: each layer is one


class Side:
    """One member: its model, its gradients' average, and what it was told about broken groups."""

    def __init__(self, group: Group, *, averages: bool = True, **options: Any) -> None:
        torch.manual_seed(0)
        self.group = group
        self.model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(BUCKETS)), nn.BatchNorm1d(4))
        self.broken: list[BaseException] = []
        self.sync = GradientSync(
            {"model": self.model}, options if averages else False, self.broken.append
        )
        self.sync.attach(group)

    def backward(self, value: float = 1.0) -> None:
        self.model(torch.arange(8.0).view(2, 4) * value).square().sum().backward()

    @property
    def gradients(self) -> list[torch.Tensor | None]:
        return [parameter.grad for parameter in self.model.parameters()]


def both(*work: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(work)) as pool:
        return [done.result(SECONDS) for done in [pool.submit(call) for call in work]]


def connected() -> tuple[Group, Group]:
    keys = Keys()
    first, second = (Group(world(2), name, "gloo") for name in ("m0", "m1"))
    both(lambda: first.connect(keys), lambda: second.connect(keys))
    return first, second


@pytest.fixture
def pair() -> Iterator[tuple[Group, Group]]:
    if not torch_private.DDP_IS_QUIET:
        pytest.skip("with this torch no member can build its DDP alone, as some of these do")
    groups = connected()
    yield groups
    for group in groups:
        group.cut()


def cut_while_waiting(waiting: Group, work: Callable[[], object]) -> BaseException | None:
    """The error that ends `work`, which waits for somebody who does not come."""
    found: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
            found.append(None)
        except BaseException as error:  # noqa: BLE001 - looked at by the caller
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive(), f"it should be waiting: {found}"
    waiting.waits.end()
    thread.join(SECONDS)
    assert found, "the cut did not end it"
    return found[0]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"find_unused_parameters": True},
    {"static_graph": True},
    {"gradient_as_bucket_view": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_cut_raises_out_of_a_scripts_backward_and_leaves_no_gradients(
    pair: tuple[Group, Group], options: dict[str, Any]
) -> None:
    side = Side(pair[0], **options)
    error = cut_while_waiting(pair[0], side.backward)
    assert type(error) is WorldChanged
    assert "job.check()" in str(error)
    assert side.gradients == [None] * len(side.gradients)
    assert len(side.broken) == 1


def test_a_cut_ends_the_wait_of_an_older_torch_that_compares_parameters_with_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch_private, "PYTHON_WORKS", False)
    if torch_private.DDP_IS_QUIET:
        monkeypatch.setattr(torch_private, "DDP_IS_QUIET", False)
        monkeypatch.setitem(torch_private.QUIET_DDP, "init_sync", True)
    groups = connected()
    try:
        error = cut_while_waiting(groups[0], lambda: Side(groups[0]))
        assert type(error) is WorldChanged
    finally:
        for group in groups:
            group.cut()


def test_a_backward_pass_after_the_cut_raises_as_well(pair: tuple[Group, Group]) -> None:
    side = Side(pair[0])
    pair[0].cut()
    with pytest.raises(WorldChanged):
        side.backward()
    assert side.gradients == [None] * len(side.gradients)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradients_are_the_mean_over_the_members(
    pair: tuple[Group, Group], options: dict[str, Any]
) -> None:
    sides = [Side(group, **options) for group in pair]
    alone = [Side(Group(world(1), "m0", "gloo")) for _ in range(2)]
    for _ in range(3):  # DDP orders its buckets in the second one
        both(lambda: sides[0].backward(1.0), lambda: sides[1].backward(2.0))
    for _ in range(3):
        alone[0].backward(1.0)
        alone[1].backward(2.0)
    for mine, yours, one, two in zip(
        sides[0].gradients, sides[1].gradients, alone[0].gradients, alone[1].gradients, strict=True
    ):
        assert mine is not None and yours is not None and one is not None and two is not None
        assert torch.equal(mine, yours)
        assert torch.allclose(mine, (one + two) / 2, atol=1e-5)


def test_a_member_lost_in_a_forward_pass_shows_in_the_backward_pass(
    pair: tuple[Group, Group],
) -> None:
    sides = [Side(group) for group in pair]
    both(*(side.backward for side in sides))
    pair[0].cut()  # in its second forward pass DDP asks the others about its buckets
    output = sides[0].model(torch.ones(2, 4))
    with pytest.raises(WorldChanged, match="repeat the step"):
        output.sum().backward()
    assert sides[0].gradients == [None] * len(sides[0].gradients)


def test_a_hand_written_loop_that_calls_only_parts_of_a_module_is_told(
    pair: tuple[Group, Group],
) -> None:
    side = Side(pair[0])
    side.sync.begin()
    side.sync.check_averaged(side.model.parameters())  # there are no gradients yet
    side.model[0](torch.ones(1, 4)).sum().backward()
    with pytest.raises(UsageError, match="gradients of 'model' were not averaged"):
        side.sync.check_averaged(side.model.parameters())
    side.sync.check_averaged(side.model[1].parameters())
    side.model(torch.ones(2, 4))
    side.sync.check_averaged(side.model.parameters())


def statistics(side: Side) -> list[torch.Tensor]:
    return [buffer.clone() for buffer in side.model.buffers()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(mine, yours) for mine, yours in zip(one, other, strict=True))


def test_a_step_that_did_not_happen_leaves_no_trace_in_batch_norm(
    pair: tuple[Group, Group],
) -> None:
    sides = [Side(group) for group in pair]
    for side in sides:
        side.sync.begin()
    both(lambda: sides[0].backward(1.0), lambda: sides[1].backward(2.0))
    once = statistics(sides[0])
    assert same(once, statistics(sides[1]))  # both have those of rank 0
    for side in sides:
        side.sync.complete()
        side.sync.begin()
    assert cut_while_waiting(pair[0], sides[0].backward) is not None
    assert not same(statistics(sides[0]), once)
    sides[0].sync.rewind()
    assert same(statistics(sides[0]), once)


def test_nor_where_the_script_averages_by_itself() -> None:
    side = Side(Group(world(2), "m0", "gloo"), averages=False)
    for _ in range(2):
        side.sync.begin()
        side.backward()
        side.sync.complete()
    twice = statistics(side)
    side.sync.begin()
    side.backward()
    assert not same(statistics(side), twice)
    side.sync.rewind()
    assert same(statistics(side), twice)


def test_buffers_that_cannot_be_kept_are_left_alone_where_the_script_averages_by_itself() -> None:
    module = nn.LazyBatchNorm1d()
    module.register_buffer("adjacency", torch.eye(3).to_sparse())
    sync = GradientSync({"model": module}, False, lambda _: None)
    sync.attach(Group(world(2), "m0", "gloo"))
    sync.begin()
    sync.rewind()
    assert torch.equal(module.adjacency.to_dense(), torch.eye(3))


def test_nor_in_a_world_of_one_that_ends_between_two_micro_batches() -> None:
    """A notice may bring a switch forward into the step under way, whose group is cut then."""
    side = Side(Group(world(1), "m0", "gloo"))
    before = statistics(side)
    side.sync.expect(replace(issued(1.0), last_micro=False))
    side.backward()
    assert not same(statistics(side), before)
    side.sync.rewind()
    assert same(statistics(side), before)


def test_nothing_is_copied_for_steps_that_change_no_buffers_or_are_never_repeated() -> None:
    copies: list[Side] = []

    def copied_in_three_steps(side: Side, *, training: bool) -> int:
        side.model.train(training)
        copy, count = side.sync._buffers.values, len(copies)
        side.sync._buffers.values = lambda: (copies.append(side), copy())[1]
        for _ in range(3):
            side.sync.expect(issued(1.0))
            side.backward()
            side.sync.complete()
        return len(copies) - count

    alone, two = Group(world(1), "m0", "gloo"), Group(world(2), "m0", "gloo")
    assert copied_in_three_steps(Side(alone), training=True) == 0
    assert copied_in_three_steps(Side(two, averages=False), training=False) == 1
    assert copied_in_three_steps(Side(two, averages=False), training=True) == 3


def test_what_a_script_does_to_buffers_between_two_steps_is_not_undone(
    pair: tuple[Group, Group],
) -> None:
    side = Side(pair[0])
    both(side.backward, Side(pair[1]).backward)
    side.sync.complete()
    for buffer in side.model.buffers():
        buffer.zero_()
    side.sync.begin()
    assert cut_while_waiting(pair[0], side.backward) is not None
    side.sync.rewind()
    assert same(statistics(side), [torch.zeros_like(b) for b in side.model.buffers()])


def issued(weight: float) -> Issued:
    indices = (0, 1) if weight else ()
    return Issued(Extent(0, 0, 0, 2), Ticket(Seat(3, 0, 2), 0), 0, indices, (0, 1), weight, True)


def guided(side: Side, loss: Callable[[], torch.Tensor], weight: float) -> None:
    """A backward pass as `job.step` does it."""
    side.sync.expect(issued(weight))
    factor = side.sync.scaled(weight)
    (loss() * factor).backward()
    side.sync.finish()
    side.sync.prescaled = False


@pytest.mark.parametrize("whole", [True, False], ids=["the whole module", "a part of it"])
def test_a_member_without_a_share_adds_zeros_even_if_its_loss_is_not_a_number(
    pair: tuple[Group, Group], whole: bool
) -> None:
    one, other = (Side(group) for group in pair)

    def loss(side: Side, factor: float) -> torch.Tensor:
        called = side.model if whole else side.model[0]
        return called(torch.arange(8.0).view(2, 4)).sum() * factor

    both(
        lambda: guided(one, lambda: loss(one, 1.0), 2.0),
        lambda: guided(other, lambda: loss(other, float("nan")), 0.0),
    )
    alone = Side(Group(world(1), "m0", "gloo"))
    loss(alone, 1.0).backward()
    for mine, yours, wanted in zip(one.gradients, other.gradients, alone.gradients, strict=True):
        assert mine is not None and yours is not None
        assert torch.equal(mine, yours)
        assert torch.allclose(mine, torch.zeros_like(mine) if wanted is None else wanted)


def test_a_module_of_which_only_parts_are_called_keeps_all_bits_of_its_gradients(
    pair: tuple[Group, Group],
) -> None:
    sides = [Side(group) for group in pair]
    for side in sides:
        side.model.double()
        side.sync.attach(side.group)
    both(
        *(
            lambda side=side: guided(side, lambda: (side.model[0].bias / 3).sum(), 1.0)
            for side in sides
        )
    )
    third = torch.ones(4, dtype=torch.float64) / 3
    assert torch.equal(sides[0].model[0].bias.grad, third / 2 + third / 2)


def test_a_rehearsal_averages_as_a_world_does_and_leaves_nothing() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(BUCKETS)))
    sync = GradientSync({"model": model}, {}, lambda _: None)
    sync.rehearse("gloo")
    threads = set(threading.enumerate())
    model(torch.ones(2, 4)).sum().backward()
    assert len(sync._rehearsed) == 1
    gradients = [parameter.grad for parameter in model.parameters()]
    sync.end_rehearsal()
    assert sync._rehearsed == []
    for thread in set(threading.enumerate()) - threads:
        thread.join(SECONDS)
    model.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    alone = [parameter.grad for parameter in model.parameters()]
    for one, other in zip(gradients, alone, strict=True):
        assert one is not None and other is not None and torch.equal(one, other)
    sync.close()
