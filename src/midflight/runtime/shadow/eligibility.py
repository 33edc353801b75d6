"""Whether newcomers may receive the state in the background: a pure decision, and its reason.

A newcomer replays the steps that it has missed with the optimizer alone. So nothing but known
optimizers, whose step is a function of gradients and their state, may change the weights, and they
get gradients that the members have averaged. Below a certain size handing the state over at once
costs less than what a world with an idle member loses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn

from midflight.errors import UsageError
from midflight.runtime import torch_private

Joining = Literal["auto", "blocking", "shadow"]
# Bytes. Handing over 200 MB took 0.13 s between processes of one machine. A shadow join, in which
# the newcomer does no work for a few steps, held the others up no less where all share two cores.
WORTHWHILE = 256 << 20
MOMENTS = 2  # what AdamW keeps beside each parameter
OPTIMIZERS = frozenset(
    f"torch.optim.{name}"
    for name in (
        *("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD"),
        *("NAdam", "RAdam", "RMSprop", "Rprop", "SGD"),
    )
)


@dataclass(frozen=True)
class Facts:
    """What a member knows of its script and of the change."""

    joining: Joining
    nbytes: int  # of large tensors that optimizers change
    optimizers: Sequence[str]  # the names of their classes
    untrained: Sequence[str] = ()  # parameters that no optimizer has
    devices: int = 1  # on which the parameters are
    averages: bool = True  # gradients, in `job.step` or `job.backward`
    bucket_views: bool = False  # gradients lie in memory that the next step uses again
    own_steps: bool = False  # the script calls `job.check`, and steps the optimizer itself
    own_collectives: bool = False
    hooks: bool = False  # the script's own, on an optimizer
    scaler: bool = False
    deterministic: bool = False
    leavers: bool = False  # members leave in the same change
    cramped: bool = False  # this host has no memory for copies of it


def describe(objects: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that follow from what a script has passed to `join`."""
    optimizers = [held for held in objects.values() if isinstance(held, torch.optim.Optimizer)]
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    trained = {id(param) for group in groups for param in group["params"]}
    modules = [held for held in objects.values() if isinstance(held, nn.Module)]
    named = [pair for module in modules for pair in module.named_parameters()]
    return {
        "optimizers": [_class_name(optimizer) for optimizer in optimizers],
        "untrained": [name for name, param in named if id(param) not in trained],
        "devices": len({param.device for _, param in named}),
        "scaler": any(is_scaler(held) for held in objects.values()),
        "hooks": any(torch_private.has_step_hooks(optimizer) for optimizer in optimizers),
    }


def is_scaler(held: object) -> bool:
    return all(callable(getattr(held, name, None)) for name in ("scale", "step", "update"))


def _class_name(held: object) -> str:
    """Torch's own by the names that scripts know them by."""
    kind = type(held)
    package = "torch.optim" if kind.__module__.startswith("torch.optim.") else kind.__module__
    return f"{package}.{kind.__qualname__}"


def check_joining(joining: str) -> None:
    if joining not in get_args(Joining):
        known = ", ".join(get_args(Joining))
        raise UsageError(f"joining is {joining!r}: give one of {known}")


def may_be_wanted(joining: Joining, objects: Mapping[str, Any]) -> bool:
    """Whether it might, as far as a newcomer can tell that has not seen the state."""
    modules = [held for held in objects.values() if isinstance(held, nn.Module)]
    nbytes = sum(param.nbytes for module in modules for param in module.parameters())
    return is_wanted(Facts(joining, nbytes * (1 + MOMENTS), ()))


def is_wanted(facts: Facts) -> bool:
    """Whether a shadow join would be worth its while, or was asked for."""
    return facts.joining == "shadow" or (facts.joining == "auto" and facts.nbytes >= WORTHWHILE)


def objection(facts: Facts) -> str | None:
    """Why newcomers have to receive the state at once; None if they can catch up."""
    unknown = [name for name in facts.optimizers if name not in OPTIMIZERS]
    objections = (
        (facts.leavers, "members leave in the same change"),
        (facts.cramped, "there is no memory for a copy of the state"),
        (facts.deterministic, "deterministic mode adds gradients in a way of its own"),
        (facts.scaler, "a gradient scaler may skip steps"),
        (not facts.averages, "the script averages its gradients itself"),
        (facts.bucket_views, "ddp has gradient_as_bucket_view"),
        (facts.own_steps, "the script steps its optimizer itself, between calls of job.check"),
        (facts.own_collectives, "the script has collectives of its own"),
        (facts.hooks, "the script has hooks on its optimizer"),
        (not facts.optimizers, "there is no optimizer"),
        (bool(unknown), f"{', '.join(unknown)} may keep more than its state_dict says"),
        (bool(facts.untrained), f"no optimizer has the parameter {(*facts.untrained, '')[0]}"),
        (facts.devices > 1, "the parameters are on several devices"),
    )
    return next((reason for applies, reason in objections if applies), None)
