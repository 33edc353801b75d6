"""Small models with each of torch's optimizers and schedulers, which train on made-up data."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from midflight.runtime.state.holdings import Holdings

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p),
    "Adam amsgrad": lambda p: optim.Adam(p, amsgrad=True, foreach=True),
    "Adam fused": lambda p: optim.Adam(p, fused=True),
    "AdamW": lambda p: optim.AdamW(p, lr=torch.tensor(0.01), weight_decay=0.1),
    "AdamW one by one": lambda p: optim.AdamW(p, foreach=False),
    "Adamax": lambda p: optim.Adamax(p),
    "Adadelta": lambda p: optim.Adadelta(p),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.2),
    "Adafactor": lambda p: optim.Adafactor(p),
    "ASGD": lambda p: optim.ASGD(p),
    "NAdam": lambda p: optim.NAdam(p),
    "RAdam": lambda p: optim.RAdam(p),
    "RMSprop": lambda p: optim.RMSprop(p, centered=True, momentum=0.5),
    "Rprop": lambda p: optim.Rprop(p),
    "LBFGS": lambda p: optim.LBFGS(p, lr=0.1, max_iter=3, line_search_fn="strong_wolfe"),
    "SparseAdam": lambda p: optim.SparseAdam(p),
    "Muon": lambda p: optim.Muon(p),  # type: ignore[attr-defined]
}
UNBUILT = {"Optimizer"} | ({"Muon"} if not hasattr(optim, "Muon") else set())

SCHEDULERS: dict[str, Callable[[optim.Optimizer], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "LambdaLR of an object": lambda o: lr_scheduler.LambdaLR(o, Falling(0.8)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.95),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4, 4]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, total_iters=4),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=5),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 5),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o), lr_scheduler.MultiStepLR(o, [1, 2])], milestones=[2]
    ),
}


class Falling:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, step: int) -> float:
        self.factor *= 0.99
        return self.factor**step


class Trainee:
    """A model with whatever trains it, built from a seed, fed with data that the step decides."""

    def __init__(self, kind: str, schedule: str | None = None, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.sparse = kind == "SparseAdam"
        if self.sparse:
            self.model: nn.Module = nn.Embedding(20, 5, sparse=True)
        else:
            bias = kind != "Muon"  # which takes matrices only
            self.model = nn.Sequential(
                nn.Linear(6, 8, bias=bias), nn.Tanh(), nn.Linear(8, 3, bias=bias)
            )
        self.optimizer = OPTIMIZERS[kind](self.model.parameters())
        held: dict[str, Any] = {"model": self.model, "optimizer": self.optimizer}
        self.scheduler = None
        if schedule is not None:
            self.scheduler = held["scheduler"] = SCHEDULERS[schedule](self.optimizer)
        self.holdings = Holdings(held)

    def step(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        if self.sparse:
            data = torch.randint(20, (4,), generator=generator)
        else:
            data = torch.randn(4, 6, generator=generator)

        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss: torch.Tensor = self.model(data).square().mean()
            loss.backward()
            return loss

        self.optimizer.step(closure)  # type: ignore[arg-type]
        if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(1.0)
        elif self.scheduler is not None:
            self.scheduler.step()

    def state(self) -> list[Any]:
        scheduler = self.scheduler.state_dict() if self.scheduler else None
        return [dict(self.model.state_dict()), self.optimizer.state_dict(), scheduler]
