"""What went wrong between here and an API server, as one line that says what to do.

Pure: from what came back to an error of our own. What the API server says itself is passed on,
since it knows the field, the quota or the right that is missing.
"""

import json
from typing import Any

from midflight.errors import (
    Exists,
    MidflightError,
    NotFound,
    Refused,
    TimedOut,
    Unreachable,
    UsageError,
)
from midflight.kubernetes import names
from midflight.kubernetes.api.kubeconfig import Settings

OLDEST = (1, 20)


class NoSuchKind(NotFound):
    """The cluster does not know the resource at all."""


class Outdated(MidflightError):
    """A list or a watch must be begun anew: what it refers to is too long ago."""


def status_of(body: bytes) -> dict[str, Any]:
    """The Status object in an answer, {} if it is something else."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


def of_answer(code: int, body: bytes, what: str, settings: Settings) -> MidflightError:
    """`what`: what was asked for, as in "list trainingjobs"."""
    status = status_of(body)
    said = one_line(str(status.get("message") or body[:200].decode(errors="replace")))
    if code == 401:
        return Refused(
            f"{settings.server} does not know you (401): log in again, or look at the user "
            f"{settings.user_name or 'of this pod'!r} of {settings.source}"
        )
    if code == 403:
        return _forbidden(said, what)
    if code == 404:
        if (status.get("details") or {}).get("name"):
            return NotFound(said)
        return NoSuchKind(f"{settings.server} cannot {what}: it knows no such resource")
    return _other(code, status, said, what, settings)


def _forbidden(said: str, what: str) -> MidflightError:
    if "exceeded quota" in said:
        return Refused(
            f"{said}; delete jobs that are over, ask for less, or have the quota of the namespace "
            "made larger"
        )
    return Refused(f"you may not {what}: {said}; ask whoever runs the cluster for that right")


def _other(
    code: int, status: dict[str, Any], said: str, what: str, settings: Settings
) -> MidflightError:
    if code == 409:
        return Exists(said) if status.get("reason") == "AlreadyExists" else Refused(said)
    if code == 410:
        return Outdated(said)
    if code in (400, 413, 415, 422):
        return Refused(f"{settings.server} refuses to {what}: {said}")
    if code == 504:
        return TimedOut(f"{settings.server} could not {what} in time: {said}; try again")
    return Unreachable(f"{settings.server} cannot {what} now ({code}): {said}; try again later")


def of_transport(error: Exception, settings: Settings, seconds: float) -> MidflightError:
    """Of a connection that did not come about, or broke."""
    where = f"the API server {settings.server} of {settings.source}"
    said = one_line(str(error)) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in said:
        why = said.partition("certificate verify failed:")[2].partition("(_ssl")[0].strip() or said
        return Unreachable(
            f"the certificate of {where} is not trusted ({why}); set certificate-authority to the "
            "cluster's CA there, or get a current kubeconfig"
        )
    if "timed out" in said or "Timeout" in type(error).__name__:
        return Unreachable(
            f"{where} did not answer within {seconds:g} s; is it up, and reachable from here?"
        )
    return Unreachable(f"{where} cannot be reached: {said}; is it up, and the address right?")


def no_resources(settings: Settings) -> MidflightError:
    return Refused(
        f"{settings.server} has no {names.TRAININGJOB} resource ({names.API}): "
        "run `midflight operator install` once for this cluster"
    )


def too_old(settings: Settings, version: str) -> MidflightError:
    wanted = ".".join(map(str, OLDEST))
    return Refused(
        f"{settings.server} is Kubernetes {version}, and {wanted} or later is needed: "
        "upgrade it, or use another cluster"
    )


def bad_config(error: Exception, settings: Settings) -> MidflightError:
    return UsageError(f"{settings.source} cannot be used: {one_line(str(error))}")


def one_line(text: str) -> str:
    return " ".join(text.split())
