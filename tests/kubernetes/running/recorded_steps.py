"""Jobs whose training is `step_recorder.py`: how it is started, and what its members recorded."""

import sys
from itertools import pairwise
from pathlib import Path

from tests.kubernetes.running.jobs import OUT, Jobs

SAMPLES, EPOCHS = 97, 40  # more than enough at its pace; in a hurry they take a few seconds
TRAIN = f"{sys.executable} {Path(__file__).with_name('step_recorder.py')} {OUT} {SAMPLES} {EPOCHS}"
LEDGERS = ("MIDFLIGHT_LEDGER_DIR", f"{OUT}/ledgers")  # a variable for the launcher


def repeated(jobs: Jobs) -> list[tuple[str, int]]:
    """Steps that a member began in vain and computed again: it, and the step."""
    found = []
    for file in sorted(jobs.out.glob("*.steps")):
        lines = [line.split() for line in file.read_text().splitlines()]
        done = [int(step) for step, how in lines if how == "done"]
        assert all(step + 1 == following for step, following in pairwise(done)), file.name
        found += [(file.stem, int(step)) for step, how in lines if how != "done"]
    return found


def finish(jobs: Jobs, job: str) -> None:
    """In a hurry; every sample of each epoch was used once."""
    jobs.hurry()
    jobs.wait_phase(job, "Succeeded")
    jobs.check_every_sample_once(EPOCHS)
