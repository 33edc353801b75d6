"""`python -m tests.simulation`: runs seeds, and tells the story of the first one that fails."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from tests.simulation.mutations import MUTATIONS, bite
from tests.simulation.shrinking import Story, run_seed, shrink, stories, tell


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", default="0:2000", metavar="FIRST:END")
    parser.add_argument("--for", dest="seconds", type=float, help="stop after so many seconds")
    parser.add_argument("--story", type=int, metavar="SEED", help="tell what happens in one seed")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a finding")
    parser.add_argument(
        "--bite",
        nargs="?",
        const="all",
        choices=("all", *MUTATIONS),
        help="put faults that were mended back, and say after how many seeds each is found",
    )
    parser.add_argument("--jobs", type=int, default=1, help="use so many processes (1)")
    options = parser.parse_args(arguments)
    if options.story is not None:
        story = run_seed(options.story)
        print("\n".join(tell(story)))
        return 1 if story.outcome.findings else 0
    first, _, end = options.seeds.partition(":")
    seeds = range(int(first), int(end))
    if options.bite is not None:
        return _bite(MUTATIONS if options.bite == "all" else [options.bite], seeds, options.jobs)
    with stories(seeds, options.jobs) as told:
        failed = _search(told, options.seconds, options.keep_going)
    if failed:
        print("\n".join(tell(shrink(failed[0]))))
    return 1 if failed else 0


def _bite(names: Iterable[str], seeds: Sequence[int], jobs: int) -> int:
    print("| `--bite` | fault | seeds | events | the finding |\n|---|---|---|---|---|")
    missed = 0
    for name in names:
        bitten = bite(MUTATIONS[name], seeds, jobs)
        missed += bitten.story is None
        finding = bitten.story.outcome.findings[0] if bitten.story else "none"
        line = (f"`{name}`", MUTATIONS[name].fault, bitten.seeds, f"{bitten.events:,}", finding)
        print("|", " | ".join(map(str, line)), "|", flush=True)
    return 1 if missed else 0


def _search(told: Iterator[Story], seconds: float | None, keep_going: bool) -> list[Story]:
    began, events, count = time.perf_counter(), 0, 0
    failed: list[Story] = []
    for story in told:
        count += 1
        events += story.outcome.events
        if story.outcome.findings:
            failed.append(story)
            print(f"seed {story.seed}: {'; '.join(story.outcome.findings)}", flush=True)
            if not keep_going:
                break
        if seconds is not None and time.perf_counter() - began > seconds:
            break
    passed = time.perf_counter() - began
    print(
        f"{count} seeds, {events:,} events in {passed:.0f} s "
        f"({events / passed:,.0f} a second), {len(failed)} with a finding"
    )
    return failed


sys.exit(main())
