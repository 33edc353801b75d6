"""The story of a seed, and a shorter one: faults are left out as long as it still fails."""

import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.simulation.cluster import Cluster, Outcome
from tests.simulation.faults import Fault
from tests.simulation.loop import START

LONGEST_STORY = 120  # lines


@dataclass(frozen=True)
class Story:
    seed: int
    faults: tuple[Fault, ...]
    setup: str
    outcome: Outcome


def run_seed(seed: int, faults: tuple[Fault, ...] | None = None) -> Story:
    """One simulation; without `faults`, with those of its seed."""
    cluster = Cluster(seed, None if faults is None else list(faults))
    outcome = cluster.run()
    return Story(seed, tuple(cluster.faults), cluster.describe(), outcome)


@contextmanager
def stories(seeds: Iterable[int], jobs: int = 1) -> Iterator[Iterator[Story]]:
    """Of each seed in their order, by so many processes."""
    if jobs == 1:
        yield map(run_seed, seeds)
        return
    ignore = (signal.SIGINT, signal.SIG_IGN)  # the terminal's is for the parent alone
    with multiprocessing.get_context("fork").Pool(jobs, signal.signal, ignore) as pool:
        yield pool.imap(run_seed, seeds)


def shrink(story: Story) -> Story:
    """The same seed with as few faults as give a finding."""
    number = 0
    while number < len(story.faults):
        fewer = run_seed(story.seed, (*story.faults[:number], *story.faults[number + 1 :]))
        if fewer.outcome.findings:
            story = fewer
        else:
            number += 1
    return story


def tell(story: Story) -> Iterator[str]:
    outcome = story.outcome
    yield f"seed {story.seed}: {story.setup}"
    for fault in story.faults:
        yield f"  fault: {fault}"
    lines = [f"  {at - START:8.3f} {text}" for at, text in outcome.story]
    half = LONGEST_STORY // 2
    if len(lines) > LONGEST_STORY:
        lines[half:-half] = [f"  ... {len(lines) - LONGEST_STORY} lines left out"]
    yield from lines
    for finding in outcome.findings:
        yield f"finding: {finding}"
    excused = ", and might have failed" if outcome.excused else ""
    yield f"{outcome.events} events; the job ended with {outcome.code}{excused}"
