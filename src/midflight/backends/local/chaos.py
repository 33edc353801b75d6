"""Rehearsing failures of one instance, with signals, and by cutting its connections.

Its keeper is spared, as the machine would be: it sees the end and writes it down. `stop` and `cont`
reach every process of the instance, those in sessions of their own included, where /proc tells, and
so does `cut`.
"""

import signal
from pathlib import Path

from midflight.backends.local import identity, keeper
from midflight.backends.local.network_cut import cut
from midflight.backends.local.reports import State, read_state
from midflight.errors import Refused, UsageError

ROUNDS = 3  # for those who are born while the others are stopped


def rehearse(folder: Path, instance: str, what: str) -> None:
    """kill | stop | cont | cut; Refused if it does not run, or if there is nothing to cut."""
    if what not in ("kill", "stop", "cont", "cut"):
        raise UsageError(f"wanted kill, stop, cont or cut, got {what!r}")
    state = read_state(folder)
    if state is None or not state.alive:
        raise Refused(f"{instance} does not run, so there is nothing to {what}")
    if what == "kill":
        keeper.send(state.pid, signal.SIGKILL, group=True)
    elif what == "cut":
        if not sum(cut(pid) for pid in identity.living(state.mark)):
            raise Refused(f"{instance} has no connection that could be cut")
    else:
        _send_all(state, signal.SIGSTOP if what == "stop" else signal.SIGCONT)


def _send_all(state: State, number: int) -> None:
    keeper.send(state.pid, number, group=True)
    reached: set[int] = set()
    for _ in range(ROUNDS):
        for pid in set(identity.living(state.mark)) - reached:
            reached.add(pid)
            keeper.send(pid, number)
