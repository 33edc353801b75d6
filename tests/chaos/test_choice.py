"""Which strike comes next: by the seed and by what is observed, and by nothing else."""

from dataclasses import replace

import pytest

from midflight.chaos.choice import (
    ACTIONS,
    CUT,
    FILL,
    KILL,
    PAUSE,
    RESIZE,
    SECONDS,
    SLOW,
    STOP,
    Member,
    Seen,
    Strike,
    choose,
    rest,
    strikes,
)

THREE = Seen(
    "stable", 10, tuple(Member(f"m{n}", True, True) for n in range(3)), size=3, least=1, most=5
)
ALONE = replace(THREE, members=THREE.members[:1], size=1)


def story(seed: int, seen: Seen = THREE, *, reckless: bool = False) -> list[Strike | None]:
    return [choose(seed, number, seen, ACTIONS, reckless=reckless) for number in range(200)]


def test_the_same_seed_and_sight_give_the_same_strikes() -> None:
    assert story(7) == story(7)
    assert story(7) != story(8)


def test_every_action_comes_up_and_lasts_as_long_as_it_may() -> None:
    chosen = [strike for strike in story(1) if strike is not None]
    assert {strike.action for strike in chosen} == set(ACTIONS)
    assert {strike.target for strike in chosen if strike.action == KILL} == {"m0", "m1", "m2"}
    for strike in chosen:
        least, most = (0.0, 0.0) if strike.peer else SECONDS.get(strike.action, (0.0, 0.0))
        assert least <= strike.seconds <= most, strike


def test_all_actions_have_come_up_before_one_comes_again_as_long_as_all_are_possible() -> None:
    chosen = [strike.action for strike in story(1) if strike is not None]
    rounds = [chosen[first : first + len(ACTIONS)] for first in range(0, 196, len(ACTIONS))]
    assert all(set(each) == set(ACTIONS) for each in rounds)
    assert len({tuple(each) for each in rounds}) > 20, "not always in the same order"


def test_only_what_was_asked_for_is_done() -> None:
    chosen = [choose(1, number, THREE, [CUT, SLOW]) for number in range(50)]
    assert {strike.action for strike in chosen if strike} == {CUT, SLOW}


def test_the_last_holder_of_the_state_is_neither_killed_nor_stopped() -> None:
    assert {strike.action for strike in story(3, ALONE) if strike} == {*ACTIONS} - {KILL, STOP}


def test_a_cut_is_between_a_member_and_the_coordinator_or_between_two_members() -> None:
    chosen = {(s.target, s.peer) for s in story(1) if s is not None and s.action == CUT}
    to_the_coordinator = {("m0", ""), ("m1", ""), ("m2", "")}
    assert chosen == to_the_coordinator | {("m0", "m1"), ("m0", "m2"), ("m1", "m2")}


def test_only_members_of_one_world_have_connections_between_them() -> None:
    newcomer, far = Member("m3", False, True), Member("m4", True, False)
    seen = replace(THREE, members=(*THREE.members[:2], newcomer, far))
    assert [s.peer for s in strikes(CUT, seen) if s.peer] == ["m1"]
    assert not any(s.peer for s in strikes(CUT, replace(seen, members=(newcomer,))))


def test_the_reckless_may_kill_it() -> None:
    assert KILL in {strike.action for strike in story(3, ALONE, reckless=True) if strike}


def test_a_newcomer_without_the_state_may_be_killed_beside_the_last_holder() -> None:
    seen = replace(ALONE, phase="preparing", members=(*ALONE.members, Member("m1", False, True)))
    assert strikes(KILL, seen) == [Strike(KILL, "m1")]


def test_nobody_is_killed_while_a_switch_hands_the_state_over() -> None:
    switching = replace(THREE, phase="switching")
    assert strikes(KILL, switching) == strikes(STOP, switching) == []
    assert strikes(PAUSE, switching) == [Strike(PAUSE)]


def test_a_member_that_is_elsewhere_or_anothers_is_left_alone() -> None:
    seen = replace(THREE, members=(*THREE.members[:2], Member("m2", True, False)))
    assert [strike.target for strike in strikes(KILL, seen)] == ["m0", "m1"]
    nobody = replace(THREE, members=(Member("m2", True, False),))
    assert strikes(SLOW, nobody, reckless=True) == []


def test_a_reset_limit_that_is_used_up_forbids_what_may_cost_a_member() -> None:
    last = replace(THREE, resets_left=0)
    assert {strike.action for strike in story(3, last) if strike} == {PAUSE, SLOW, FILL, RESIZE}


def test_a_resize_keeps_the_limits_and_changes_something() -> None:
    assert [strike.to for strike in strikes(RESIZE, THREE)] == [1, 2, 4, 5]
    assert strikes(RESIZE, replace(THREE, least=3, most=3)) == []
    assert strikes(RESIZE, replace(THREE, phase="preparing")) == []


@pytest.mark.parametrize("phase", ["starting", "recovering", "waiting", "restarting", "ending"])
def test_a_training_that_makes_no_steps_is_not_struck(phase: str) -> None:
    assert choose(1, 1, replace(THREE, phase=phase), ACTIONS) is None


def test_rests_are_as_long_as_asked_on_average() -> None:
    rests = [rest(5, number, 3.0) for number in range(500)]
    assert min(rests) >= 0 and max(rests) <= 6.0
    assert 2.7 < sum(rests) / len(rests) < 3.3
