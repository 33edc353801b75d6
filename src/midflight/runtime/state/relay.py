"""Who hands the state to whom, and in which round: a pure decision.

Each holder gives to one receiver per round, and a receiver that has got the state gives it on
in the next, so n receivers are served in about log2(n) rounds. The answer depends only on the two
lists and their order: all members work it out for themselves and agree. Members that neither give
nor receive do not appear. Nothing here knows what is handed over, or how.
"""

from collections.abc import Sequence

from midflight.errors import StateError

Round = tuple[tuple[int, int], ...]
"""Pairs of (source, target) that run at the same time; no member is in two of them."""


def relay(holders: Sequence[int], receivers: Sequence[int]) -> tuple[Round, ...]:
    """The rounds in which `receivers` get what `holders` have; () when nobody lacks it."""
    giving = list(dict.fromkeys(holders))
    waiting = list(dict.fromkeys(receivers))
    both = sorted(set(giving) & set(waiting))
    if both:
        raise StateError(f"members {both} cannot both hold the state and wait for it")
    if waiting and not giving:
        raise StateError(
            f"nobody holds the state that members {sorted(waiting)} wait for; "
            "start the job again from its last checkpoint"
        )
    rounds: list[Round] = []
    while waiting:
        pairs = tuple(zip(giving, waiting, strict=False))
        rounds.append(pairs)
        served = [target for _, target in pairs]
        waiting = waiting[len(served) :]
        giving = giving + served
    return tuple(rounds)
