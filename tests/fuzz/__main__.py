"""`python -m tests.fuzz COUNT [SEED]`: so many inputs for the readers, one after the other.

Ends with 1 at the first input that breaks one, after writing it to `tests/fuzz/corpus`, from where
every run of the tests tries it again. Says how many inputs there were in a second, the slowest one,
and how much the memory has grown.
"""

import random
import resource
import sys
import time

from tests.fuzz.targets import CORPUS, TARGETS, mutate, seeds

SLOW = 5.0  # seconds; an input that takes longer counts as a hang


def main(count: int, seed: int) -> int:
    chance = random.Random(seed)
    good, names = seeds(), list(TARGETS)
    began, slowest, before = time.monotonic(), 0.0, 0
    for number in range(count):
        name, data = names[number % len(names)], mutate(chance.choice(good), chance)
        start = time.monotonic()
        try:
            TARGETS[name](data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            path = CORPUS / f"{name}-{seed}-{number}"
            path.write_bytes(data)
            print(f"{name}: {type(error).__name__}: {error}; the input is in {path}")
            return 1
        slowest = max(slowest, time.monotonic() - start)
        if number == count // 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    rate = count / (time.monotonic() - began)
    print(f"{count:,} inputs, {rate:,.0f}/s, slowest {slowest:.3f} s, grown by {grown >> 10} MiB")
    return int(slowest > SLOW)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
