"""`kungfu-fake-adaptive-trainer`: a training loop without a model, which follows the cluster.

Each step sums one over all workers; the result has to be their number. A step, its result and how
long it took are printed, as KungFu's own does.
"""

import sys
import time
from collections.abc import Sequence

from midflight import durations
from midflight.compat.kungfu import go_flags
from midflight.compat.kungfu.go_flags import Flag
from midflight.console import exit_code_of
from midflight.errors import UsageError

PROGRAM = "kungfu-fake-adaptive-trainer"
FLAGS = {
    "max-step": Flag(2000, go_flags.whole(1, 1 << 31), "steps to do"),
    "step-time": Flag(0.05, durations.parse, "how long a step takes"),
    "train": Flag(True, go_flags.switch, "communicate in each step"),
}


def main(argv: Sequence[str] | None = None) -> int:
    return exit_code_of(lambda: _train(sys.argv[1:] if argv is None else argv))


def _train(words: Sequence[str]) -> int:
    values, _, rest = go_flags.parse(PROGRAM, FLAGS, words)
    if rest:
        raise UsageError(f"{PROGRAM} takes flags only, got {rest[0]!r:.80}")
    from midflight.compat.kungfu import python as kungfu  # torch comes with it
    from midflight.compat.kungfu.python.elastic_state import ElasticContext, ElasticState

    state = ElasticState(values["max-step"])
    while not state.stopped():
        with ElasticContext(state) as fresh:
            rank, size = kungfu.current_rank(), kungfu.current_cluster_size()
            if fresh:
                print(f"restored from {state.progress}, rank={rank}, np={size}", flush=True)
            began = time.monotonic()
            result = kungfu.all_reduce_int_sum(1) if values["train"] else size
            took = 1000 * (time.monotonic() - began)
            print(
                f"step: {state.progress}, result: {result}, rank={rank}, np={size}, "
                f"took {took:.3f}ms",
                flush=True,
            )
            time.sleep(values["step-time"])
    print(f"{state.stop_reason()} at step {state.progress}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
