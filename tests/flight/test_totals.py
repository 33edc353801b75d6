"""What the record of a run adds up to, piece by piece."""

from midflight.flight.records import Begun, Formed, Lost, Over, Paused, Place, Progress, Record
from midflight.flight.totals import MOST_WORLDS, OTHER, Totals
from midflight.protocol.pause import Pause

PLACES = (Place("m0", "h0"), Place("m1", "h1"))
PAUSE = Pause(detect=0.5, agree=0.25, connect=1.0, state=2.0, first_step=0.75, usual=0.25)
RECORD: list[Record] = [
    Begun(0.0, "mine", 1e9, 2, 1, 4),
    Formed(1.0, 1, 0, "start", PLACES),
    Progress(2.0, 10, 100),
    Lost(3.0, "m1", "h1", "its process is gone"),
    Formed(3.1, 2, 10, "failure", PLACES[:1]),
    Paused(3.2, "m0", 2, 10, planned=False, pause=PAUSE),
    Progress(4.0, 20, 200),
]


def test_a_record_adds_up_in_one_piece_as_in_many() -> None:
    whole = Totals().after(RECORD)
    piecemeal = Totals()
    for record in RECORD:
        piecemeal = piecemeal.after([record])
    assert whole == piecemeal
    assert (whole.step, whole.samples, whole.members, whole.losses) == (20, 200, 1, 1)
    assert whole.changes == {"start": 1, "failure": 1}


def test_a_pause_is_counted_in_each_phase_under_the_cause_of_its_change() -> None:
    totals = Totals().after([*RECORD, Paused(4.1, "m1", 2, 10, planned=False, pause=PAUSE)])
    assert totals.pauses == {
        ("failure", "detect"): (2, 1.0),
        ("failure", "agree"): (2, 0.5),
        ("failure", "connect"): (2, 2.0),
        ("failure", "state"): (2, 4.0),
        ("failure", "first step"): (2, 1.0),
    }


def test_a_cause_of_a_later_release_and_one_that_was_not_seen_are_called_other() -> None:
    later = Formed(5.0, 3, 20, "eclipse", PLACES)
    unseen = Paused(5.1, "m0", 99, 20, planned=True, pause=PAUSE)
    totals = Totals().after([later, unseen])
    assert totals.changes == {OTHER: 1}
    assert {cause for cause, _ in totals.pauses} == {OTHER}


def test_only_so_many_worlds_are_remembered() -> None:
    worlds = [Formed(float(n), n, 0, "request", PLACES) for n in range(MOST_WORLDS + 5)]
    totals = Totals().after(worlds)
    assert len(totals.causes) == MOST_WORLDS
    assert totals.changes == {"request": MOST_WORLDS + 5}


def test_steps_that_are_done_again_after_a_checkpoint_are_not_counted_twice() -> None:
    totals = Totals().after([*RECORD, Progress(9.0, 12, 120)])
    assert (totals.step, totals.samples) == (20, 200)


def test_a_record_that_begins_anew_starts_from_nothing() -> None:
    assert Totals().after([*RECORD, Begun(0.0, "mine", 2e9, 2, 1, 4)]) == Totals()


def test_nobody_trains_any_more_when_the_run_is_over() -> None:
    assert Totals().after([*RECORD, Over(9.0, 20, "succeeded", "")]).members == 0
