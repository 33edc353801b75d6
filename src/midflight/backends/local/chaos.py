"""Rehearsing failures of one instance, with nothing but signals.

Its keeper is spared, as the machine would be: it sees the end and writes it down. `stop` and `cont`
reach every process of the instance, those in sessions of their own included, where /proc tells.
"""

import signal
from pathlib import Path

from midflight.backends.local import identity, keeper
from midflight.backends.local.reports import State, read_state
from midflight.errors import Refused, UsageError

ROUNDS = 3  # for those who are born while the others are stopped


def rehearse(folder: Path, instance: str, what: str) -> None:
    """kill | stop | cont; Refused if it does not run, or for a cut."""
    if what == "cut":
        raise Refused(
            "cutting the network of one instance needs a network namespace, which instances on "
            "this machine do not have; `chaos stop` makes it fall silent, `chaos kill` ends it"
        )
    if what not in ("kill", "stop", "cont"):
        raise UsageError(f"wanted kill, stop, cont or cut, got {what!r}")
    state = read_state(folder)
    if state is None or not state.alive:
        raise Refused(f"{instance} does not run, so there is nothing to {what}")
    if what == "kill":
        keeper.send(state.pid, signal.SIGKILL, group=True)
    else:
        _send_all(state, signal.SIGSTOP if what == "stop" else signal.SIGCONT)


def _send_all(state: State, number: int) -> None:
    keeper.send(state.pid, number, group=True)
    reached: set[int] = set()
    for _ in range(ROUNDS):
        for pid in set(identity.living(state.mark)) - reached:
            reached.add(pid)
            keeper.send(pid, number)
