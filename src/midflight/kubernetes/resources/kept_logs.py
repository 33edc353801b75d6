"""The ends of the logs of a job's failed pods, which the operator keeps in a ConfigMap.

A pod goes when its instance is started again, and its log goes with it. Of each instance the end of
the last log is kept, and of a job so many that they fit into one object. A key names the moment,
the instance and its attempt, and so the keys are in the order in which the pods failed. Pure.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from midflight.kubernetes.resources.pod import Pod

MOST = 8  # logs: half of what an object may hold
LONGEST = 64 << 10  # bytes of one


class Key(NamedTuple):
    moment: str
    instance: str
    attempt: str


def key(pod: Pod, now: float) -> str:
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    return ".".join(Key(moment, pod.name, str(pod.attempt)))


def end_of(log: str) -> str:
    """Whole lines, as far as there is one."""
    data = log.encode()
    if len(data) <= LONGEST:
        return log
    rest = data[-LONGEST:]
    _, _, lines = rest.partition(b"\n")
    return (lines or rest).decode(errors="ignore")


def change(former: Iterable[str], added: Mapping[str, str]) -> dict[str, str | None]:
    """As a merge patch of the data: the new ones, and None for those that make room for them."""
    again = {_read(each).instance for each in added}
    others = sorted(each for each in former if _read(each).instance not in again)
    room = max(MOST - len(added), 0)
    kept = {*others[max(len(others) - room, 0) :]}
    return {**{each: None for each in former if each not in kept}, **added}


def by_instance(data: Mapping[str, str]) -> dict[str, str]:
    """The last log of each instance, in the order in which they failed."""
    last = {_read(each).instance: each for each in sorted(data)}
    return {instance: data[each] for instance, each in sorted(last.items(), key=lambda one: one[1])}


def _read(text: str) -> Key:
    moment, _, rest = text.partition(".")
    instance, _, attempt = rest.rpartition(".")
    return Key(moment, instance, attempt)
