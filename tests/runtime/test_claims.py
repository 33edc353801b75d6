"""Whose state is the job's, decided from what the members say."""

from dataclasses import replace

from midflight.runtime.state.claims import NEWCOMER, Claim, settle

HERE = Claim(generation=3, step=20, epoch=1, digest=7, checksum=8, can_give=True)


def test_a_claim_survives_being_sent_as_numbers() -> None:
    assert Claim.from_numbers(HERE.to_numbers()) == HERE


def test_equal_members_have_nothing_to_hand_over() -> None:
    outcome = settle([HERE, HERE, HERE])
    assert (outcome.holders, outcome.receivers) == ((0, 1, 2), ())


def test_newcomers_and_members_a_step_behind_receive() -> None:
    behind = replace(HERE, step=19, digest=1)
    outcome = settle([behind, HERE, NEWCOMER])
    assert (outcome.givers, outcome.behind, outcome.differing) == ((1,), (0, 2), ())


def test_those_who_receive_without_room_for_two_states_are_named() -> None:
    full = replace(HERE, has_room=False)
    outcome = settle([full, replace(full, step=19), replace(HERE, step=19), NEWCOMER])
    assert (outcome.holders, outcome.behind, outcome.cramped) == ((0,), (1, 2, 3), (1,))


def test_at_the_very_beginning_rank_0_gives_its_weights() -> None:
    outcome = settle([replace(NEWCOMER, can_give=True), NEWCOMER])
    assert (outcome.givers, outcome.behind) == ((0,), (1,))


def test_a_step_of_an_older_generation_loses_against_the_same_step_of_a_newer_one() -> None:
    alone_in_the_old_world = replace(HERE, generation=2, digest=1)
    outcome = settle([alone_in_the_old_world, HERE])
    assert (outcome.holders, outcome.behind) == ((1,), (0,))


def test_whoever_has_passed_the_end_of_an_epoch_is_further() -> None:
    outcome = settle([HERE, replace(HERE, epoch=2, digest=1)])
    assert (outcome.holders, outcome.behind, outcome.differing) == ((1,), (0,), ())


def test_the_state_that_most_of_them_have_is_the_job_s() -> None:
    outcome = settle([replace(HERE, digest=1), HERE, replace(HERE, checksum=1), HERE])
    assert (outcome.holders, outcome.differing, outcome.behind) == ((1, 3), (0, 2), ())


def test_of_two_equally_frequent_states_that_of_the_lower_rank_is_the_job_s() -> None:
    assert settle([HERE, replace(HERE, checksum=1)]).holders == (0,)


def test_a_state_that_can_be_handed_over_wins_against_one_that_cannot() -> None:
    stuck = Claim(*HERE.progress)
    outcome = settle([stuck, stuck, HERE])
    assert (outcome.givers, outcome.differing) == ((2,), (0, 1))


def test_members_that_all_hold_what_cannot_be_handed_over_are_left_alone() -> None:
    stuck = Claim(*HERE.progress)
    outcome = settle([stuck, stuck])
    assert (outcome.holders, outcome.receivers) == ((0, 1), ())
    outcome = settle([stuck, stuck, NEWCOMER])
    assert (outcome.givers, outcome.receivers) == ((), (2,))


def test_newcomers_alone_receive_in_the_background_and_only_if_all_agree() -> None:
    holder, newcomer = replace(HERE, background=True), replace(NEWCOMER, background=True)
    assert settle([holder, holder, newcomer]).background
    assert not settle([holder, HERE, newcomer]).background
    assert not settle([holder, holder, NEWCOMER]).background
    assert not settle([holder, holder]).background, "nobody receives"
    assert not settle([newcomer, holder, holder]).background, "it would be rank 0"
    behind = replace(holder, step=holder.step - 1)
    assert not settle([holder, behind, newcomer]).background
    assert not settle([newcomer, newcomer]).background, "nobody holds a state"
