"""Admission: whether an object is a job to be looked after, and what it says of itself if not.

One that a queue holds back, that another operator has begun, or that makes no sense is left as it
is, but for its status or an Event that tells why. It is looked at again whenever it changes.
"""

import contextlib
from dataclasses import replace

from midflight.backends.kubernetes import names, status
from midflight.backends.kubernetes.objects import sizes
from midflight.backends.kubernetes.objects.reading import spec_of
from midflight.backends.kubernetes.objects.templates import part
from midflight.controller.commands import Record
from midflight.controller.spec import Spec
from midflight.errors import UsageError
from midflight.operator.api import Object
from midflight.operator.office import Office

ANOTHERS = "another operator has begun it, and it is left alone: to have it run here, make it anew"
UNTIL_CORRECTED = "its pods are left alone, and nothing else happens until that is corrected"


def is_claimed(obj: Object) -> bool:
    """It is not gone before we have let it go."""
    return names.FINALIZER in finalizers(obj)


def finalizers(obj: Object) -> set[str]:
    return set(obj["metadata"].get("finalizers") or ())


def warn(office: Office, obj: Object, reason: str, text: str) -> None:
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    record = Record(f"{namespace}/{name}", f"job/{name}", "Warning", reason, text)
    office.recorder.note(obj, record)


async def stands_back(office: Office, obj: Object) -> bool:
    """Whether it is for others to go on, a queue say; the object tells who."""
    if obj["metadata"].get("deletionTimestamp"):
        return not is_claimed(obj)
    if status.is_anothers(obj):
        warn(office, obj, "NotOurs", ANOTHERS)
        return True
    if other := _manager(obj):
        warn(office, obj, "NotOurs", f"spec.runPolicy.managedBy says that {other} runs it")
        return True
    if (who := holder(obj)) and status.wanted(obj) is None:
        if (obj.get("status") or {}).get("phase") != status.SUSPENDED:
            held = status.held_job(who, obj["metadata"].get("generation"), office.clock())
            await _show(office, obj, held)
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


async def spec_of_unknown(office: Office, obj: Object, wrong: str) -> Spec | None:
    """Of one with a wrong spec that this operator has not seen before; it may run nevertheless.

    None: nothing can be done for it now.
    """
    if (wanted := status.wanted(obj)) is None:
        await _refuse(office, obj, wrong)
        return None
    try:
        return spec_of(sizes.with_workers(obj, wanted))
    except UsageError:
        if (kept := status.kept_spec(obj)) is not None:
            warn(office, obj, "SpecRefused", wrong)
            return replace(kept, workers=wanted)
        warn(office, obj, "SpecRefused", f"{wrong}; {UNTIL_CORRECTED}")
        return None


async def _refuse(office: Office, obj: Object, wrong: str) -> None:
    generation = obj["metadata"].get("generation")
    before = obj.get("status") or {}
    if before.get("observedGeneration") == generation and before.get("phase") == "Failed":
        return
    warn(office, obj, "InvalidSpec", wrong)
    await _show(office, obj, status.refused_job(wrong, generation, office.clock()))


async def _show(office: Office, obj: Object, shown: Object) -> None:
    office.put_job(await office.api.replace_status({**obj, "status": shown}))
