"""Steps that a newcomer could not take when they were due, taken later with the optimizer alone.

What is recorded of a step are its gradients, after all that the script did to them, and the
hyperparameters of that moment. They are replayed by a twin of the optimizer: it has the same state
and, in parameters of its own, the same memory, so the script's optimizer, its hyperparameters and
its gradients can meanwhile belong to a later step. The result is the same bit for bit.
"""

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Recorded:
    """One step of one optimizer."""

    gradients: Sequence[Tensor | None]
    hyperparameters: Sequence[Mapping[str, Any]]  # of each group

    @property
    def nbytes(self) -> int:
        return sum(gradient.nbytes for gradient in self.gradients if gradient is not None)


def record(optimizer: torch.optim.Optimizer) -> Recorded:
    """The step that the optimizer would take now.

    It keeps the gradients, so they must not be written to again: the next step has to make others.
    """
    groups = optimizer.param_groups
    return Recorded(
        [param.grad for group in groups for param in group["params"]],
        [{k: _copied(v) for k, v in group.items() if k != "params"} for group in groups],
    )


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.copy(value)


class Twin:
    """An optimizer that takes recorded steps in another one's place."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._original = optimizer
        self._own = {
            param: nn.Parameter(param.data, requires_grad=param.requires_grad)
            for group in optimizer.param_groups
            for param in group["params"]
        }
        self._twin = copy.copy(optimizer)  # without hooks
        for name, value in vars(optimizer).items():
            if name != "step":  # a scheduler's, which counts the original's steps
                vars(self._twin).setdefault(name, value)
        self._twin.param_groups = [
            {**group, "params": [self._own[param] for param in group["params"]]}
            for group in optimizer.param_groups
        ]
        self._twin.state = defaultdict(dict)
        for param, state in optimizer.state.items():
            self._twin.state[self._own[param]] = state

    def step(self, recorded: Recorded) -> None:
        groups = self._twin.param_groups
        params = [param for group in groups for param in group["params"]]
        for param, gradient in zip(params, recorded.gradients, strict=True):
            param.grad = gradient
        for group, values in zip(groups, recorded.hyperparameters, strict=True):
            group.update(values)
        self._twin.step()
        for param in params:
            param.grad = None

    def finish(self) -> None:
        """All is replayed: the original has the state that first steps made."""
        for param, own in self._own.items():
            if self._twin.state.get(own) and param not in self._original.state:
                self._original.state[param] = self._twin.state[own]
