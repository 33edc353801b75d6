"""What members must have in common, and what a member hears that does not have it."""

from typing import Any

from midflight.errors import DataError, StateError
from midflight.runtime.state.terms import Terms, are_equal, objection

PLAN = {"samples": 100, "global_batch_size": 128, "epochs": 5}


def refusal(own: Terms, first: Terms) -> Any:
    return objection(own, first, "m2", "m0")


def test_terms_survive_being_sent() -> None:
    terms = Terms([("0.weight", (4, 3), "float32")], {"deterministic": 4}, PLAN, 2)
    assert Terms.from_json(terms.to_json()) == terms


def test_a_plan_that_one_of_them_does_not_know_yet_is_no_difference() -> None:
    known, unknown = Terms(plan=PLAN), Terms()
    assert are_equal([known.marks(), unknown.marks()])
    assert are_equal([unknown.marks(), known.marks()])
    assert refusal(unknown, known) is None


def test_a_batch_that_grows_with_the_world_is_named_with_both_values() -> None:
    own, first = Terms(plan={**PLAN, "global_batch_size": 192}), Terms(plan=PLAN)
    assert not are_equal([first.marks(), own.marks()])
    error = refusal(own, first)
    assert isinstance(error, DataError)
    assert "global_batch_size is 192 on m2 and 128 on m0" in str(error)


def test_a_plan_whose_epochs_are_done_is_not_compared() -> None:
    own = Terms(plan={**PLAN, "samples": 50, "epochs": 3})
    assert refusal(own, Terms(plan=PLAN, epoch=2)) is not None
    assert refusal(own, Terms(plan=PLAN, epoch=3)) is None


def test_options_of_join_are_named_too() -> None:
    error = refusal(Terms(options={"verify_every": None}), Terms(options={"verify_every": 10}))
    assert isinstance(error, StateError)
    assert "verify_every is None on m2 and 10 on m0; pass the same options to join()" in str(error)


def test_a_model_that_differs_is_told_by_its_parameter() -> None:
    own, first = (Terms([("w", (size,), "float32")]) for size in (3, 4))
    assert "parameter 'w' is float32[3] here and float32[4] on the others" in str(
        refusal(own, first)
    )
