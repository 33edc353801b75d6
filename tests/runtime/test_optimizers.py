from typing import Any

import pytest
from torch import optim
from torch.optim import lr_scheduler

from tests.runtime.handing import gloo, hand_over, same_bits
from tests.runtime.trainee import OPTIMIZERS, SCHEDULERS, UNBUILT, Trainee


@pytest.fixture(scope="module")
def groups() -> list[Any]:
    return gloo()


def test_all_of_torch_s_optimizers_and_schedulers_are_tried() -> None:
    kinds = {name.split()[0] for name in OPTIMIZERS} | UNBUILT
    assert kinds >= {name for name in dir(optim) if isinstance(vars(optim).get(name), type)}
    schedulers = {name.split()[0] for name in SCHEDULERS}
    known = vars(lr_scheduler).items()
    base = lr_scheduler.LRScheduler
    assert schedulers >= {n for n, v in known if isinstance(v, type) and issubclass(v, base)} - {
        "LRScheduler",
        "_LRScheduler",
    }


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("kind", [k for k in OPTIMIZERS if k not in UNBUILT])
def test_an_optimizer_arrives_bit_for_bit_and_goes_on_like_the_giver_s(
    groups: list[Any], kind: str, before: int
) -> None:
    giver, taker = Trainee(kind), Trainee(kind, seed=1)
    for number in range(before):
        giver.step(number)
    hand_over(groups, giver.holdings, taker.holdings)
    assert same_bits(taker.state(), giver.state())
    for number in range(before, before + 3):
        giver.step(number)
        taker.step(number)
        assert same_bits(taker.state(), giver.state())


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_a_scheduler_arrives_and_goes_on_like_the_giver_s(groups: list[Any], schedule: str) -> None:
    giver, taker = (Trainee("SGD momentum", schedule, seed) for seed in (0, 1))
    for number in range(3):
        giver.step(number)
    hand_over(groups, giver.holdings, taker.holdings)
    for number in range(3, 8):
        assert same_bits(taker.state(), giver.state())
        giver.step(number)
        taker.step(number)
    assert same_bits(taker.state(), giver.state())
