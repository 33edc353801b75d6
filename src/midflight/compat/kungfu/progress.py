"""How far a job is, in samples, and the resizes it has seen: the part that all hooks share.

What it prints is what KungFu's hook prints: how long each resize took, and why training stopped.
"""

import time

from midflight.compat.kungfu import sizes
from midflight.compat.kungfu.peer import peer
from midflight.compat.kungfu.schedule import StepBasedSchedule


class Progress:
    def __init__(
        self, local_batch_size: int, total: int, schedule: StepBasedSchedule | None = None
    ) -> None:
        self._local = local_batch_size
        self._total = total
        self._schedule = schedule
        self._fresh = True
        self.step = 0
        self.trained_samples = 0
        self.exit_reason: str | None = None

    def begin(self) -> bool:
        """Whether this is the first step in this cluster; then the counts are the cluster's."""
        if not self._fresh:
            return False
        at = peer()
        self.trained_samples = at.reduce_int(self.trained_samples, "max")
        self.step = at.reduce_int(self.step, "max")
        self._fresh = False
        return True

    def end(self) -> bool:
        """A step is done: count it, follow the cluster. False: it was the last one here."""
        at = peer()
        before = at.size
        if not at.void:
            self.step += 1
            self.trained_samples += self._local * before
        at.progress = self.trained_samples
        if self.trained_samples >= self._total:
            self._stop("finished")
            return False
        began = time.monotonic()
        changed, detached = self._follow(before)
        if detached:
            self._stop("change cluster")
            return False
        if changed:
            self._fresh = True
            took = 1000 * (time.monotonic() - began)
            print(f"resize {before} -> {at.size} took {took:.1f}ms", flush=True)
        return True

    def _follow(self, size: int) -> tuple[bool, bool]:
        at = peer()
        if self._schedule is not None:
            wanted = self._schedule(self.step)
            if wanted != size:
                return sizes.resize(at, wanted)
        return sizes.follow(at)

    def _stop(self, reason: str) -> None:
        self.exit_reason = reason
        print(
            f"stopped after trained {self.trained_samples} samples in {self.step} steps "
            f"due to {reason}",
            flush=True,
        )
