"""Who may receive the state while all train, and what the others are told."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from midflight.errors import UsageError
from midflight.runtime.shadow.eligibility import (
    WORTHWHILE,
    Facts,
    check_joining,
    describe,
    is_wanted,
    may_be_wanted,
    objection,
)

PLAIN = Facts("auto", WORTHWHILE, ["torch.optim.AdamW"])


def test_a_large_state_of_a_plain_script_can_follow() -> None:
    assert is_wanted(PLAIN)
    assert objection(PLAIN) is None


@pytest.mark.parametrize(
    ("joining", "nbytes", "wanted"),
    [
        ("auto", WORTHWHILE - 1, False),
        ("auto", WORTHWHILE, True),
        ("shadow", 0, True),
        ("blocking", 1 << 40, False),
    ],
)
def test_size_decides_unless_the_script_does(joining: Any, nbytes: int, wanted: bool) -> None:
    assert is_wanted(replace(PLAIN, joining=joining, nbytes=nbytes)) == wanted


@pytest.mark.parametrize(
    ("joining", "width", "may_be"),
    [("auto", 4600, False), ("auto", 4800, True), ("shadow", 1, True), ("blocking", 9000, False)],
)
def test_a_newcomer_judges_by_its_parameters(joining: Any, width: int, may_be: bool) -> None:
    model = nn.Linear(width, width, device="meta")  # and AdamW keeps two more of each
    assert may_be_wanted(joining, {"model": model}) == may_be


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"optimizers": ["torch.optim.LBFGS"]}, "torch.optim.LBFGS"),
        ({"optimizers": ["torch.optim.SGD", "own.Optimizer"]}, "own.Optimizer"),
        ({"optimizers": []}, "no optimizer"),
        ({"untrained": ["ema.weight"]}, "ema.weight"),
        ({"devices": 2}, "several devices"),
        ({"averages": False}, "averages its gradients itself"),
        ({"bucket_views": True}, "gradient_as_bucket_view"),
        ({"own_steps": True}, "job.check"),
        ({"own_collectives": True}, "collectives of its own"),
        ({"hooks": True}, "hooks"),
        ({"scaler": True}, "scaler"),
        ({"deterministic": True}, "deterministic"),
        ({"leavers": True}, "members leave"),
        ({"cramped": True}, "no memory for a copy"),
    ],
)
def test_what_a_replay_would_miss_is_named(change: dict[str, Any], reason: str) -> None:
    assert reason in (objection(replace(PLAIN, **change)) or "")


def test_facts_are_found_in_what_the_script_joins_with() -> None:
    class Own(torch.optim.SGD):
        pass

    model, average = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.register_step_pre_hook(lambda *_: None)  # a job's own
    facts = describe({"model": model, "optimizer": optimizer})
    assert facts == {
        "optimizers": ["torch.optim.AdamW"],
        "untrained": [],
        "devices": 1,
        "scaler": False,
        "hooks": False,
    }
    optimizer.register_step_post_hook(lambda *_: None)
    own = Own(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu")
    facts = describe(
        {"model": model, "average": average, "optimizer": optimizer, "own": own, "scaler": scaler}
    )
    assert facts["optimizers"][1] not in ("torch.optim.SGD", "torch.optim.Own")
    assert facts["untrained"] == ["weight", "bias"]
    assert facts["scaler"]
    assert facts["hooks"]


def test_an_unknown_way_to_join_is_refused() -> None:
    with pytest.raises(UsageError, match="auto, blocking, shadow"):
        check_joining("background")
