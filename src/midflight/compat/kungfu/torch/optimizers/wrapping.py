"""A torch optimizer whose steps are taken together with the other workers.

The object that a script gets is of a class made from its own optimizer's, with the same parameter
groups and the same state, so that schedulers and checkpoints take it as what it is. Before each
step an algorithm communicates; a step whose communication was overtaken by a loss is left out, as
its result has come with the state of the others. Parameters and optimizer state are registered
with the peer, and so go to newcomers.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from midflight.compat.kungfu.peer import Peer, peer
from midflight.errors import UsageError

Named = list[tuple[str, Tensor]]


class Algorithm(Protocol):
    def before_step(self, at: Peer, parameters: Named) -> bool:
        """Communicate, and put the result in place. False: leave this step out."""
        ...


class Shared:
    """The parameters and the state of an optimizer, as one thing that is carried to newcomers."""

    def __init__(self, optimizer: Optimizer, parameters: Named) -> None:
        self._optimizer = optimizer
        self._parameters = parameters

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": {name: parameter.detach() for name, parameter in self._parameters},
            "optimizer": self._optimizer.state_dict(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        theirs = state["parameters"]
        for name, parameter in self._parameters:
            found = theirs.get(name)
            if found is None or found.shape != parameter.shape:
                shape = "missing" if found is None else list(found.shape)
                raise UsageError(
                    f"parameter {name!r} is {list(parameter.shape)} here and {shape} on the other "
                    "workers; build the same model on all of them"
                )
            parameter.copy_(found)
        self._optimizer.load_state_dict(state["optimizer"])


def wrapped(
    optimizer: Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None,
    algorithm: Algorithm,
) -> Any:
    """`optimizer`, with the algorithm before each of its steps."""
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"wanted a torch optimizer, got a {type(optimizer).__name__}")
    parameters = _parameters(optimizer, named_parameters)
    at = peer()
    kind = type(optimizer)
    usual = kind.step

    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if algorithm.before_step(at, parameters):
            usual(self)
        return loss

    def sync_gradients(self: Any) -> None:
        """The step does it; here for scripts that ask for it by name."""

    made: Any = type(kind.__name__, (kind,), {"step": step, "sync_gradients": sync_gradients})
    # The same object under another class: its hooks, defaults and state stay what they are.
    optimizer.__class__ = made
    optimizer.__dict__.pop("step", None)  # a scheduler that was there first has put its own here
    at.optimizers += 1
    at.hold(f"optimizer-{at.optimizers}", Shared(optimizer, parameters))
    return optimizer


def _parameters(
    optimizer: Optimizer, named_parameters: Iterable[tuple[str, Tensor]] | None
) -> Named:
    """In an order that is the same on all workers: that of the optimizer's groups."""
    names = {id(parameter): name for name, parameter in named_parameters or ()}
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [(names.get(id(p), f"parameter-{number}"), p) for number, p in enumerate(own)]
