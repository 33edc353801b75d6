"""An instance is told to end, is sent off for good, or goes back to wait for a place.

`orders.py` tells it, and again if it is late.
"""

from midflight.controller.draft import Draft
from midflight.controller.state import ON_NODE, Instance, Stage
from midflight.deadlines import STOP_GRACE


def stop(draft: Draft, key: str, name: str, grace: float, reason: str) -> None:
    """Nothing happens to what is not up, or is stopping already."""
    instance = draft.jobs[key].instances[name]
    if instance.stage in (Stage.STARTING, Stage.RUNNING):
        by = draft.now + grace
        draft.set_instance(key, name, stage=Stage.STOPPING, stop_by=by, reason=reason)


def kill(draft: Draft, key: str, name: str) -> None:
    """At once, stopping or not; for what is on a node."""
    instance = draft.jobs[key].instances[name]
    if instance.stage in ON_NODE:
        draft.set_instance(key, name, stage=Stage.STOPPING, stop_by=draft.now)


def dismiss(draft: Draft, key: str, name: str, reason: str) -> None:
    """It leaves for good: it is taken off the list as soon as it has ended."""
    if (instance := draft.jobs[key].instances.get(name)) is None:
        return
    if instance.stage not in ON_NODE:
        draft.drop_instance(key, name)
        return
    stop(draft, key, name, STOP_GRACE, reason)
    draft.set_instance(key, name, leaving=True)


def wait_anew(draft: Draft, key: str, name: str, reason: str) -> Instance:
    """It has ended, or never began, and waits for a place as if it were new."""
    return draft.set_instance(
        key,
        name,
        stage=Stage.PENDING,
        reason=reason,
        node="",
        devices=(),
        pid=0,
        started_at=None,
        ended_at=None,
        stop_by=None,
        retry_at=0.0,
    )
