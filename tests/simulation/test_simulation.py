"""A share of the simulation; `make simulate` runs as much of it as there is time for."""

import random
import threading

import pytest

from tests.simulation.faults import FRAMES, PATIENT, SEQUENCES, Fault, choose
from tests.simulation.mutations import MUTATIONS, bite
from tests.simulation.plain import choose_habits
from tests.simulation.shrinking import run_seed, shrink, tell


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_the_core_keeps_its_promises_under_every_fault(first: int) -> None:
    for seed in range(first, first + 5):
        story = run_seed(seed)
        if story.outcome.findings:
            pytest.fail("\n".join(tell(shrink(story))))


def test_a_seed_is_the_same_story_every_time() -> None:
    assert run_seed(3) == run_seed(3)


def test_sequences_and_changed_frames_leave_the_other_faults_of_a_seed_as_they_are() -> None:
    for seed in range(20):
        chosen = [
            choose(random.Random(seed), random.Random(more), random.Random(more))
            for more in range(20)
        ]
        kinds = {fault.kind for faults in chosen for fault in faults}
        alone = bool(kinds & {*PATIENT})
        assert bool(kinds & {*SEQUENCES}) is bool(kinds & {*FRAMES}) is not alone
        added = (*SEQUENCES, *FRAMES, "ask_to_stop")
        others = {tuple(f for f in faults if f.kind not in added) for faults in chosen}
        assert len(others) == 1


CALLS_MIDFLIGHT, DOES_NOT = 7, 3  # seeds


@pytest.mark.parametrize("seed", [CALLS_MIDFLIGHT, DOES_NOT])
def test_a_job_without_faults_trains_every_sample_and_succeeds(seed: int) -> None:
    habits = choose_habits(random.Random(f"{seed} script"))
    assert (habits is None) is (seed == CALLS_MIDFLIGHT)
    outcome = run_seed(seed, ()).outcome
    assert outcome.code == 0 and not outcome.findings and not outcome.excused


def test_a_job_whose_last_holder_is_killed_may_fail_but_says_so() -> None:
    killed = tuple(Fault(6.0 + n / 100, "kill_member", 0, 0.0) for n in range(12))
    outcome = run_seed(7, killed).outcome
    assert outcome.excused and not outcome.findings


@pytest.mark.parametrize("name", ["stuck", "unreduced", "last_step", "backend", "leaver", "outbox"])
def test_a_fault_that_was_mended_is_found_when_it_is_put_back(name: str) -> None:
    assert bite(MUTATIONS[name], range(20)).story is not None


def test_a_story_is_shortened_to_the_faults_without_which_nothing_is_found() -> None:
    with MUTATIONS["unreduced"].applied():
        stories = (run_seed(seed) for seed in range(20))
        story = next(s for s in stories if s.outcome.findings and len(s.faults) > 2)
        short = shrink(story)
        assert short.outcome.findings and 0 < len(short.faults) < len(story.faults)
        for number in range(len(short.faults)):
            fewer = (*short.faults[:number], *short.faults[number + 1 :])
            assert not run_seed(story.seed, fewer).outcome.findings


def test_code_that_blocks_in_a_process_that_dies_leaves_no_thread() -> None:
    threads = threading.active_count()
    run_seed(0)
    assert threading.active_count() == threads
