"""When training counts as having gone on after a strike."""

from dataclasses import replace

from midflight.chaos.choice import KILL, PAUSE, STOP, Member, Seen, Strike
from midflight.chaos.recovery import Recovery

TWO = Seen("stable", 10, (Member("m0", True, True), Member("m1", True, True)))
ONE = replace(TWO, members=TWO.members[:1])


def after(strike: Strike, *sights: tuple[float, Seen], striking: bool = False) -> Recovery:
    recovery = Recovery(strike, began=100.0)
    for now, seen in sights:
        recovery = recovery.observe(now, seen, striking=striking)
    return recovery


def at(step: int, seen: Seen = ONE) -> Seen:
    return replace(seen, step=step)


def test_steps_of_a_world_with_the_killed_member_do_not_count() -> None:
    found = after(Strike(KILL, "m1"), (100.1, at(11, TWO)), (101.0, at(12, TWO)))
    assert not found.complete
    assert found.seconds is None


def test_training_has_gone_on_when_the_others_make_steps() -> None:
    sights = [(100.2, at(12)), (100.5, at(13)), (100.9, at(15)), (101.0, at(16))]
    found = after(Strike(KILL, "m1"), *sights)
    assert found.complete
    assert found.seconds == 0.5


def test_a_step_that_was_still_on_its_way_is_not_enough() -> None:
    sights = [(100.2, at(12)), (100.4, at(13)), (100.9, at(13)), (160.0, at(13))]
    assert not after(Strike(KILL, "m1"), *sights).complete


def test_survivors_that_have_yet_to_form_a_world_have_not_gone_on() -> None:
    recovering = replace(ONE, phase="recovering")
    sights = [(now, at(12 + now, recovering)) for now in range(101, 110)]
    assert not after(Strike(KILL, "m1"), *sights).complete


def test_a_passing_fault_must_have_passed() -> None:
    sights = [(now, at(12 + now, TWO)) for now in range(101, 110)]
    assert not after(Strike(PAUSE), *sights, striking=True).complete
    assert after(Strike(PAUSE), *sights).complete


def test_others_go_on_while_a_member_that_was_given_up_is_still_stopped() -> None:
    sights = [(now, at(12 + now)) for now in range(101, 110)]
    assert after(Strike(STOP, "m1"), *sights, striking=True).complete


def test_a_training_that_came_to_its_end_has_gone_on() -> None:
    assert after(Strike(PAUSE), (101.0, Seen("succeeded", 20))).complete


def test_a_training_that_failed_has_not() -> None:
    found = after(Strike(PAUSE), (101.0, Seen("failed", 20)))
    assert found.failed
    assert not found.complete
