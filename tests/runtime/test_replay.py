"""Steps that are replayed later end in the same bits as steps taken when they were due."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from midflight.runtime.shadow.eligibility import OPTIMIZERS, describe
from midflight.runtime.shadow.replay import Recorded, Twin, record
from tests.runtime.trainee import OPTIMIZERS as BUILDERS
from tests.runtime.trainee import Trainee

STEPS = 5
REPLAYED = sorted(
    kind
    for kind in BUILDERS
    if kind != "Muon"
    and describe({"optimizer": Trainee(kind).optimizer})["optimizers"][0] in OPTIMIZERS
)


def gradients(trainee: Trainee, number: int) -> None:
    """What a backward pass leaves, clipped by the script."""
    trainee.optimizer.zero_grad()
    source = torch.Generator().manual_seed(number)
    for param in trainee.model.parameters():
        param.grad = torch.randn(param.shape, generator=source)
    nn.utils.clip_grad_norm_(trainee.model.parameters(), 1.0)


def schedule(trainee: Trainee) -> None:
    if trainee.scheduler is not None:
        trainee.scheduler.step()


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(
    ("kind", "trained"), [*((kind, 3) for kind in REPLAYED), ("SGD momentum", 0), ("AdamW", 0)]
)
def test_a_replay_ends_in_the_same_bits(kind: str, trained: int) -> None:
    here, there = Trainee(kind, "ExponentialLR"), Trainee(kind, "ExponentialLR", seed=1)
    for number in range(trained):
        gradients(here, number)
        here.optimizer.step()
        schedule(here)
    snapshot = copy.deepcopy(here.state())
    there.model.load_state_dict(snapshot[0])
    there.optimizer.load_state_dict(snapshot[1])
    assert there.scheduler is not None
    there.scheduler.load_state_dict(snapshot[2])
    queue: list[Recorded] = []
    for number in range(trained, trained + STEPS):
        for trainee in (here, there):
            gradients(trainee, number)
        here.optimizer.step()
        queue.append(record(there.optimizer))
        schedule(here)
        schedule(there)
    twin = Twin(there.optimizer)
    for recorded in queue:
        twin.step(recorded)
    twin.finish()
    assert bits(there.state()) == bits(here.state())


def bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return [(key, bits(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [bits(item) for item in value]
    return value


def test_later_gradients_and_hyperparameters_do_not_reach_a_recorded_step() -> None:
    trainee = Trainee("SGD momentum")
    gradients(trainee, 0)
    recorded = record(trainee.optimizer)
    before = bits([list(recorded.gradients), list(recorded.hyperparameters)])
    trainee.optimizer.param_groups[0]["lr"] = 7.0
    gradients(trainee, 1)
    assert bits([list(recorded.gradients), list(recorded.hyperparameters)]) == before
    assert recorded.nbytes == sum(p.nbytes for p in trainee.model.parameters())
