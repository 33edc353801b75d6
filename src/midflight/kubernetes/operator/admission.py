"""Admission: which objects are jobs to reconcile, and what the others say of themselves.

A job that a queue holds back, that another operator has begun, or whose spec is invalid is left as
it is; its status or an Event says why. It is examined again whenever it changes.
"""

import contextlib
from dataclasses import replace

from midflight.controller.commands import Record
from midflight.controller.spec import Spec
from midflight.errors import UsageError
from midflight.kubernetes import names
from midflight.kubernetes.api.async_connection import Object
from midflight.kubernetes.operator.cache import Cache
from midflight.kubernetes.resources import replicas, status
from midflight.kubernetes.resources.job_spec import spec_of
from midflight.kubernetes.resources.templates import part

ANOTHERS = "another operator started it, so it is left alone; to run it here, create it again"
UNTIL_CORRECTED = "its pods stay as they are, and nothing else happens until that is corrected"


def is_claimed(obj: Object) -> bool:
    """It is not gone before we have let it go."""
    return names.FINALIZER in finalizers(obj)


def finalizers(obj: Object) -> set[str]:
    return set(obj["metadata"].get("finalizers") or ())


def warn(cache: Cache, obj: Object, reason: str, text: str) -> None:
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    record = Record(f"{namespace}/{name}", f"job/{name}", "Warning", reason, text)
    cache.recorder.note(obj, record)


async def stands_back(cache: Cache, obj: Object) -> bool:
    """Whether it is for others to go on, a queue say; the object tells who."""
    if obj["metadata"].get("deletionTimestamp"):
        return not is_claimed(obj)
    if status.is_anothers(obj):
        warn(cache, obj, "NotOurs", ANOTHERS)
        return True
    if other := _manager(obj):
        warn(cache, obj, "NotOurs", f"spec.runPolicy.managedBy says that {other} runs it")
        return True
    if (who := holder(obj)) and status.wanted(obj) is None:
        if (obj.get("status") or {}).get("phase") != status.SUSPENDED:
            held = status.held_job(who, obj["metadata"].get("generation"), cache.clock())
            await _show(cache, obj, held)
        return True
    return False


def holder(obj: Object) -> str:
    """What keeps it from running; "" if nothing does."""
    annotations = obj["metadata"].get("annotations") or {}
    for name in (names.SUSPEND, names.SUSPENDED):
        if annotations.get(name) == "true":
            return f"the annotation {name}"
    with contextlib.suppress(UsageError):  # it is refused soon
        if part(obj, "spec.runPolicy").value.get("suspend") is True:
            return "spec.runPolicy.suspend"
    return ""


def _manager(obj: Object) -> str:
    """Who is to run it instead of us; "" if nobody is."""
    with contextlib.suppress(UsageError):  # it is refused soon
        said = part(obj, "spec.runPolicy").value.get("managedBy")
        if isinstance(said, str) and said not in ("", names.KUBEFLOW, names.MANAGER):
            return said
    return ""


async def spec_of_unknown(cache: Cache, obj: Object, wrong: str) -> Spec | None:
    """Of one with a wrong spec that this operator has not seen before; it may run nevertheless.

    None: nothing can be done for it now.
    """
    if (wanted := status.wanted(obj)) is None:
        await _refuse(cache, obj, wrong)
        return None
    try:
        return spec_of(replicas.with_workers(obj, wanted))
    except UsageError:
        if (kept := status.kept_spec(obj)) is not None:
            warn(cache, obj, "SpecRefused", wrong)
            return replace(kept, workers=wanted)
        warn(cache, obj, "SpecRefused", f"{wrong}; {UNTIL_CORRECTED}")
        return None


async def _refuse(cache: Cache, obj: Object, wrong: str) -> None:
    generation = obj["metadata"].get("generation")
    before = obj.get("status") or {}
    if before.get("observedGeneration") == generation and before.get("phase") == "Failed":
        return
    warn(cache, obj, "InvalidSpec", wrong)
    await _show(cache, obj, status.refused_job(wrong, generation, cache.clock()))


async def _show(cache: Cache, obj: Object, shown: Object) -> None:
    cache.put(await cache.api.replace({**obj, "status": shown}, status=True))
