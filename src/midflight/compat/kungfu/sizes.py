"""Another size, asked for by a script: waited for by all workers together, or left to come."""

import sys
import time

from midflight.compat.kungfu.asking import Asking, Outcome, check_size
from midflight.compat.kungfu.peer import Peer

PACE = 0.02  # seconds between two looks at a change that all members wait for
PATIENCE = 300.0  # seconds after which a change that nobody has refused is not waited for


def resize(at: Peer, size: int) -> tuple[bool, bool]:
    """(changed, detached). Every worker calls it at the same place; rank 0 asks for the size."""
    check_size(size)
    if at.alone or at.detached or at.size == size:
        return at.boundary()
    asking = Asking(at.environment, size) if at.rank == 0 else None
    deadline = time.monotonic() + PATIENCE
    while True:
        changed, detached = at.boundary()
        if changed or detached:
            return changed, detached
        refused = asking is not None and asking.outcome is Outcome.REFUSED
        if at.reduce_int(int(refused or time.monotonic() > deadline), "max"):
            if asking is not None:
                reason = asking.reason or f"it did not happen within {PATIENCE:g} s"
                print(f"kungfu: not resized to {size}: {reason}", file=sys.stderr, flush=True)
            return False, False
        time.sleep(PACE)


def propose(at: Peer, size: int) -> None:
    """Ask for a size; the change comes at some later boundary."""
    check_size(size)
    if not at.alone and not at.detached:
        Asking(at.environment, size)
