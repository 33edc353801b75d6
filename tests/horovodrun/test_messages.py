"""Which of Horovod's last sentences a failed job ends with."""

from dataclasses import replace

import pytest

from midflight.compat.horovod.runner.messages import SHUT_DOWN, last_words
from midflight.coordinator.core.state import Ended, State, initial
from midflight.protocol.job import JobSpec

SPEC = JobSpec("job", ("true",), np=3, min_np=2, max_np=3, reset_limit=1, elastic_timeout=60)
BEGUN = replace(initial(SPEC, 0.0), launched_at=1.0)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, SHUT_DOWN),
        (BEGUN, SHUT_DOWN),
        (
            replace(BEGUN, resets=2, first_failure=Ended("a", 0, 1)),
            "Horovod was shutdown because number of resets during elastic job exceeded limit: 1",
        ),
        (
            initial(SPEC, 0.0),
            "Timed out waiting for minimum number of slots to become available. Please check that "
            "you have enough resources to run at least 2 Horovod processes. Timeout after 60 "
            "seconds.",
        ),
        (
            replace(BEGUN, resets=1, first_failure=Ended("a", 2, -9)),
            "Horovod detected that one or more processes exited with non-zero status, thus causing "
            "the job to be terminated. The first process to do so was:\nProcess name: a[2]\n"
            "Exit code: 137\n",
        ),
        (
            replace(BEGUN, first_failure=Ended("a", 2, 1, 4, "ValueError: no such layer")),
            "Horovod detected that one or more processes exited with non-zero status, thus causing "
            "the job to be terminated. The first process to do so was:\nProcess name: a[2]\n"
            "Exit code: 1\nReason: rank 4: ValueError: no such layer\n",
        ),
    ],
)
def test_a_failed_job_ends_with_a_sentence_that_says_why(state: State | None, words: str) -> None:
    assert last_words(state) == words


def test_too_few_for_too_long_is_told_as_missing_slots() -> None:
    waited = replace(BEGUN, waiting_since=5.0, first_failure=Ended("a", 0, 1))
    assert last_words(waited).startswith("Timed out waiting for minimum number of slots")
