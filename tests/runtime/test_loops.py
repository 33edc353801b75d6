"""What people do in a training loop, before and after a resize and a death.

Each case trains in a world of two that a third member joins, and that then loses one in the middle
of a step. The weights are to be those of a world of one that nothing happens to, but for rounding,
and the same bit for bit on the members that are left.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import midflight as mf
from midflight.errors import UsageError
from tests.runtime.handing import same_bits
from tests.runtime.threaded import BATCH, STEPS, Story, run

DATA = torch.randn(BATCH * STEPS, 6, generator=torch.Generator().manual_seed(0)).double()
LATE = 5  # a step after the resize and the death


class Parts:
    """What is passed to `join`, and what a step does with it."""

    micro_batch_size: int | None = None
    shards: int | None = None  # of deterministic mode

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = self.build().double()
        self.optimizer = self.optimize(self.model.parameters())

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def optimize(self, parameters: Any) -> Any:
        return torch.optim.AdamW(parameters, lr=0.05)

    def held(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def loss(self, x: Tensor) -> Tensor:
        return self.model(x).square().mean()

    def step(self, job: mf.Job, x: Tensor) -> bool:
        return job.step(self.loss(x))

    def state(self) -> list[Any]:
        return [part.state_dict() for part in self.held().values()]


class Accumulation(Parts):
    micro_batch_size = 2


class Clipping(Parts):
    def step(self, job: mf.Job, x: Tensor) -> bool:
        if not job.backward(self.loss(x)):
            return False
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.01)
        assert norm > 0.01
        return job.apply()


class Gan(Parts):
    """Both losses in one step: the generator's goes through a critic that it does not train."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(6, 6).double()
        self.second = torch.optim.SGD(self.generator.parameters(), lr=0.1, momentum=0.9)

    def held(self) -> dict[str, Any]:
        return {**super().held(), "generator": self.generator, "second": self.second}

    def loss(self, x: Tensor) -> Tensor:
        made = self.generator(x)
        critic = self.model(x).mean() - self.model(made.detach()).mean()
        frozen = {name: p.detach() for name, p in self.model.named_parameters()}
        return critic + torch.func.functional_call(self.model, frozen, made).square().mean()


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = x if not self.reentrant else x.clone().requires_grad_()
        hidden = checkpoint(lambda t: self.first(t).tanh(), x, use_reentrant=self.reentrant)
        return self.second(hidden)


class Activations(Parts):
    def build(self) -> nn.Module:
        return Checkpointed(reentrant=False)


class ReentrantActivations(Parts):
    def build(self) -> nn.Module:
        return Checkpointed(reentrant=True)


class Tied(Parts):
    def build(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        model[2].weight = model[0].weight
        return model

    def step(self, job: mf.Job, x: Tensor) -> bool:
        assert self.model[2].weight is self.model[0].weight
        return super().step(job, x)


class Ema(Parts):
    def __init__(self) -> None:
        super().__init__()
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        self.ema = AveragedModel(self.model, multi_avg_fn=average).requires_grad_(False)

    def held(self) -> dict[str, Any]:
        return {**super().held(), "ema": self.ema}

    def step(self, job: mf.Job, x: Tensor) -> bool:
        done = super().step(job, x)
        if done:
            self.ema.update_parameters(self.model)
        return done


class Freezing(Parts):
    """The first layer is frozen in the beginning, and trained from a later step on."""

    def step(self, job: mf.Job, x: Tensor) -> bool:
        self.model[0].requires_grad_(job.step_number in (0, 3, LATE))
        return super().step(job, x)


class FreezingInShards(Freezing):
    shards = 4

    def __init__(self) -> None:
        super().__init__()
        self.model[0].requires_grad_(False)  # before anybody can have seen it trained


class ChannelsLast(Parts):
    def build(self) -> nn.Module:
        model = nn.Sequential(nn.Unflatten(1, (3, 1, 2)), nn.Conv2d(3, 4, (1, 2)), nn.Flatten())
        return model.to(memory_format=torch.channels_last)

    def step(self, job: mf.Job, x: Tensor) -> bool:
        weight = self.model[1].weight
        assert weight.is_contiguous(memory_format=torch.channels_last)
        return super().step(job, x)


class Fused(Parts):
    def optimize(self, parameters: Any) -> Any:
        return torch.optim.AdamW(parameters, lr=0.05, fused=True)


class Foreach(Parts):
    def optimize(self, parameters: Any) -> Any:
        return torch.optim.Adam(parameters, lr=0.05, foreach=True, amsgrad=True)


class Lazy(Parts):
    """Its layers have no shape before they see data; then it is an ordinary model."""

    def build(self) -> nn.Module:
        model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(3)).double()
        model(DATA[:1])
        return model


CASES = (
    Parts,
    Accumulation,
    Clipping,
    Gan,
    Activations,
    ReentrantActivations,
    Tied,
    Ema,
    Freezing,
    FreezingInShards,
    ChannelsLast,
    Fused,
    Foreach,
    Lazy,
)


def train(job: mf.Job, parts: Parts, dies: Callable[[], bool]) -> Any:
    plan = {"shuffle": False, "micro_batch_size": parts.micro_batch_size}
    for batch in job.batches(DATA, global_batch_size=BATCH, epochs=1, plan=plan):
        if dies():
            return None
        parts.step(job, batch.data)
    assert job.step_number == STEPS
    return parts.state()


@pytest.mark.parametrize("case", CASES)
def test_it_trains_what_a_world_of_one_trains(case: type[Parts]) -> None:
    alone = case()
    with mf.join(**alone.held(), deterministic=case.shards) as job:
        expected = train(job, alone, lambda: False)
    held: dict[int, Parts] = {}

    def join() -> mf.Job:
        parts = case()
        job = mf.join(**parts.held(), deterministic=case.shards)
        held[id(job)] = parts
        return job

    def member(job: mf.Job, story: Story, name: str) -> Any:
        return train(job, held[id(job)], lambda: story.dies_in(job, name))

    first, second = run(join, member)
    assert same_bits(first, second)
    if case.shards is not None:
        assert same_bits(first, expected)
    torch.testing.assert_close(first, expected, rtol=1e-9, atol=1e-12)


def test_an_optimizer_that_cannot_repeat_a_step_is_refused() -> None:
    model = nn.Linear(6, 1).double()
    with mf.join(model=model, optimizer=torch.optim.LBFGS(model.parameters())) as job:
        batch = next(job.batches(DATA, global_batch_size=BATCH, epochs=1))
        with pytest.raises(UsageError, match="LBFGS moves the weights several times"):
            job.step(model(batch.data).mean())
