"""What the members of a new world agree on."""

from midflight.compat.kungfu.settlement import Place, Row, settle


def row(place: Place, steps: int, boundaries: int, holds: int = 1) -> Row:
    return Row(holds, place, steps, boundaries, 0, steps)


NEWCOMER = row(Place.ARRIVING, 0, 0, holds=0)


def test_a_planned_change_is_told_at_the_boundary_where_all_stand() -> None:
    agreed = settle([row(Place.BOUNDARY, 7, 7), row(Place.BOUNDARY, 7, 7), NEWCOMER])
    assert (agreed.root, agreed.behind, agreed.told_at) == (0, (2,), 7)
    assert not agreed.void


def test_the_first_world_has_nothing_to_hand_over() -> None:
    agreed = settle([NEWCOMER, NEWCOMER])
    assert (agreed.root, agreed.behind, agreed.told_at) == (0, (), 0)


def test_survivors_in_the_same_step_do_it_again_and_hear_of_it_at_the_next_boundary() -> None:
    agreed = settle([row(Place.STEP, 7, 7), row(Place.STEP, 7, 7)])
    assert (agreed.behind, agreed.told_at, agreed.void) == ((), 8, False)


def test_who_missed_a_step_takes_it_over_from_who_has_it() -> None:
    agreed = settle([row(Place.STEP, 7, 7), row(Place.STEP, 8, 8)])
    assert (agreed.root, agreed.behind, agreed.steps) == (1, (0,), 8)
    assert agreed.told_at == 9, "where the one that is ahead comes next"


def test_who_missed_a_step_is_told_where_the_others_wait() -> None:
    agreed = settle([row(Place.STEP, 7, 7), row(Place.BOUNDARY, 8, 8)])
    assert (agreed.root, agreed.told_at) == (1, 8)


def test_nobody_is_told_before_somebody_who_is_further() -> None:
    agreed = settle([row(Place.BOUNDARY, 8, 8), row(Place.STEP, 8, 8)])
    assert (agreed.behind, agreed.told_at) == ((), 9)


def test_with_newcomers_after_a_loss_nothing_counts_before_the_boundary_where_they_begin() -> None:
    agreed = settle([row(Place.BOUNDARY, 7, 7), row(Place.STEP, 7, 7), NEWCOMER])
    assert (agreed.void, agreed.told_at) == (True, 7)
    assert not settle([row(Place.BOUNDARY, 7, 7), NEWCOMER]).void
