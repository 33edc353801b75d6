"""What a change costs a member, phase by phase, from moments on its clock."""

import pytest

from midflight.protocol.pause import Pause
from midflight.runtime.membership.pauses import Pauses


def training() -> Pauses:
    """Steps of 10 ms, the last one complete at 1.0."""
    pauses = Pauses()
    for number in range(101):
        assert pauses.stepped(number / 100) is None
    assert pauses.usual == pytest.approx(0.01)
    return pauses


def test_a_failure_costs_what_lies_between_the_last_step_and_the_next() -> None:
    pauses = training()
    pauses.noticed(1.005)
    pauses.noticed(1.006)  # by another of its threads
    pauses.ordered(1.012, planned=False)
    pauses.connected(1.02)
    pauses.agreed(1.03)
    found = pauses.stepped(1.05)
    assert found is not None and not found[0]
    pause = found[1]
    assert (pause.detect, pause.agree, pause.connect) == pytest.approx((0.005, 0.007, 0.008))
    assert (pause.state, pause.first_step, pause.usual) == pytest.approx((0.01, 0.02, 0.01))
    assert pause.seconds == pytest.approx(0.04)
    assert pauses.stepped(1.06) is None


def test_a_planned_change_holds_nothing_up_before_its_boundary() -> None:
    pauses = training()
    pauses.ordered(4.0, planned=True)  # the script evaluated in between
    pauses.connected(4.001)
    pauses.agreed(4.003)
    found = pauses.stepped(4.02)
    assert found is not None and found[0]
    assert found[1].seconds == pytest.approx(0.01)
    assert (found[1].detect, found[1].agree) == (0.0, 0.0)


def test_losses_in_a_row_are_one_pause() -> None:
    pauses = training()
    pauses.noticed(1.005)
    pauses.ordered(1.01, planned=False)
    pauses.noticed(1.02)  # while it was connecting
    pauses.ordered(1.03, planned=False)
    pauses.connected(1.04)
    pauses.agreed(1.05)
    found = pauses.stepped(1.07)
    assert found is not None
    assert found[1].agree == pytest.approx(0.025)
    assert found[1].seconds == pytest.approx(0.06)


def test_a_newcomer_has_no_pause() -> None:
    pauses = Pauses()
    pauses.ordered(1.0, planned=True)
    pauses.connected(1.1)
    pauses.agreed(1.2)
    assert pauses.stepped(1.3) is None
    assert pauses.stepped(1.4) is None
    assert pauses.usual == pytest.approx(0.1)


def test_a_pause_does_not_change_what_is_usual() -> None:
    pauses = training()
    pauses.noticed(1.1)
    pauses.ordered(1.2, planned=False)
    pauses.connected(1.3)
    pauses.agreed(1.4)
    pauses.stepped(9.0)
    assert pauses.usual == pytest.approx(0.01)


def test_a_broken_collective_in_a_whole_world_is_no_pause() -> None:
    pauses = training()
    pauses.noticed(1.005)
    assert pauses.stepped(1.02) is None


@pytest.mark.parametrize(
    "pause",
    [
        Pause(0.0, 0.0, 0.0, 0.0, 0.02, 0.01),
        Pause(0.02, 0.01, 0.0, 0.0, 0.001, 0.01),
        Pause(0.001, 0.0, 0.0, 0.0, 0.002, 0.01),
    ],
)
def test_the_phases_of_a_pause_make_its_seconds_and_none_is_negative(pause: Pause) -> None:
    assert sum(pause.phases.values()) == pause.seconds
    assert min(pause.phases.values()) >= 0.0
