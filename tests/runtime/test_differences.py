"""What is said of two states that should be equal and are not."""

from collections import OrderedDict
from typing import Any

import torch

from midflight.runtime.state.differences import name_differences, name_tensors
from midflight.runtime.state.tree import pack


def differences(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    return name_differences(pack(mine).blob, pack(theirs).blob)


def test_a_learning_rate_is_named_with_both_values() -> None:
    mine, theirs = ({"optimizer": {"param_groups": [{"lr": lr}]}} for lr in (0.1, 0.05))
    assert differences(mine, theirs) == "optimizer.param_groups[0].lr is 0.1 here and 0.05 there"


def test_what_only_one_of_them_has_is_missing_on_the_other() -> None:
    mine, theirs = {"job.state": {"best": 3}}, {"job.state": {}}
    assert differences(mine, theirs) == "job.state.best is 3 here and missing there"


def test_keys_that_are_no_names_are_shown_in_brackets() -> None:
    mine, theirs = ({"state": {4: OrderedDict(step=step)}} for step in (1, 2))
    assert differences(mine, theirs) == "state[4].step is 1 here and 2 there"


def test_the_cursor_is_called_so_and_random_numbers_are_left_out() -> None:
    mine, theirs = ({"job.extra": {"epoch": n}, "job.rng": {"x": n}} for n in (1, 2))
    assert differences(mine, theirs) == "cursor.epoch is 1 here and 2 there"


def test_three_are_named_and_the_rest_is_counted() -> None:
    mine, theirs = ({"job.state": dict.fromkeys("abcde", n)} for n in (1, 2))
    said = differences(mine, theirs)
    assert said.count(" is 1 here") == 3
    assert said.endswith("; and 2 more")


def test_tensors_are_named_by_where_they_are() -> None:
    packed = pack({"model": {"0.weight": torch.ones(2)}, "opt": {"state": {3: [torch.ones(1)]}}})
    assert name_tensors(packed.blob) == {0: "model[0.weight]", 1: "opt.state[3][0]"}
    assert "the values of opt.state[3][0] differ" in name_differences(packed.blob, packed.blob, [1])


def test_states_that_differ_in_nothing_but_their_order_are_said_to() -> None:
    assert "order" in differences({"s": {"a": 1, "b": 2}}, {"s": {"b": 2, "a": 1}})
