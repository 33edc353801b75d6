"""`python -m tests.fuzz COUNT [SEED]`: so many inputs for the readers, one after the other.

Ends with 1 at the first input that breaks a reader or takes too long, after writing it to
`tests/fuzz/corpus`, from where every run of the tests tries it again; and if the memory has grown.
Says how many inputs there were in a second and the slowest one.
"""

import gc
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.targets import CORPUS, TARGETS, choose, seeds

COMPUTES, WAITS = 5.0, 60.0  # seconds that one input may take: of computing, and in all
GROWS = 64 << 20  # bytes, after the first tenth


class Hang(BaseException):
    """Of this base, so that no reader takes it for an error of its own."""


@contextmanager
def watched(computes: float, waits: float) -> Iterator[None]:
    """Interrupts what is inside with a Hang when it takes longer."""

    def ring(number: int, frame: object) -> None:
        raise Hang("computes too long" if number == signal.SIGPROF else "waits too long")

    before = {number: signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, computes)
    signal.setitimer(signal.ITIMER_REAL, waits)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fuzz(
    targets: Mapping[str, Callable[[bytes], None]],
    count: int,
    seed: int,
    computes: float = COMPUTES,
    keep: Path = CORPUS,
) -> str:
    """What was found; "" if nothing was."""
    chance, good, names = random.Random(seed), seeds(), list(targets)
    began, slowest, before = time.monotonic(), (0.0, ""), 0
    for number in range(count):
        name = names[number % len(names)]
        data, start = choose(name, good, chance), time.monotonic()
        try:
            with watched(computes, WAITS):
                targets[name](data)
        except (Exception, Hang) as error:  # noqa: BLE001 - whatever it is, it is a finding
            path = keep / f"{name}-{seed}-{number}"
            path.write_bytes(data)
            return f"{name}: {type(error).__name__}: {error}; the input is in {path}"
        slowest = max(slowest, (time.monotonic() - start, name))
        if number == count // 10:
            before = resident()
    grown, rate = resident() - before, count / (time.monotonic() - began)
    print(
        f"{count:,} inputs, {rate:,.0f}/s, slowest {slowest[0]:.3f} s ({slowest[1]}), "
        f"grown by {grown >> 20} MiB"
    )
    return f"the memory has grown by {grown >> 20} MiB" if grown > GROWS else ""


def main(count: int, seed: int) -> int:
    if found := fuzz(TARGETS, count, seed):
        print(found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
