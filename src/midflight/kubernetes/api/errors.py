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
from midflight.kubeconfig import Settings
from midflight.kubernetes import names

OLDEST = (1, 20)
_LONGEST = 2000  # characters of what an API server says


class NoSuchKind(NotFound):
    """The cluster does not know the resource at all."""


class Outdated(MidflightError):
    """A list or a watch must be begun anew: what it refers to is too long ago."""


class Changed(Refused):
    """Somebody else has changed the object since it was read."""


class UnknownKind(Unreachable):
    """A bare 404, about no object: no such kind is served, or not yet by a server that starts."""


class Rejected(MidflightError):
    """The API server will not do it: no right, a full quota, an object that is not valid."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def for_good(self) -> bool:
        """The object itself is wrong, so that trying again is of no use."""
        return self.code in (400, 413, 422)  # not to be read, too large, not valid


def status_of(body: bytes) -> dict[str, Any]:
    """The Status object in an answer, {} if it is something else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}


def from_answer(code: int, body: bytes, what: str, settings: Settings) -> MidflightError:
    """`what`: what was asked for, as in "list trainingjobs"."""
    status = status_of(body)
    text = str(status.get("message") or body[:200].decode(errors="replace"))
    said = one_line(text)[:_LONGEST] or f"it does not say why ({code})"
    if code == 401:
        return Refused(
            f"{settings.server} does not know you (401): log in again, or look at the user "
            f"{settings.user_name or 'of this pod'!r} of {settings.source}"
        )
    if code == 403:
        return _forbidden(said, what)
    if code == 404:
        details = status.get("details")
        if isinstance(details, dict) and details.get("name"):
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
        return Exists(said) if status.get("reason") == "AlreadyExists" else Changed(said)
    if code == 410:
        return Outdated(said)
    if code in (400, 413, 415, 422):
        return Refused(f"{settings.server} refuses to {what}: {said}")
    if code == 504:
        return TimedOut(f"{settings.server} could not {what} in time: {said}; try again")
    return Unreachable(f"{settings.server} cannot {what} now ({code}): {said}; try again later")


def from_transport(error: Exception, settings: Settings, seconds: float) -> MidflightError:
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


def from_lightkube(error: Exception) -> MidflightError:
    """For the operator, which acts on the type of an error and repeats what may pass."""
    import httpx2
    from lightkube import ApiError

    if not isinstance(error, ApiError):
        if isinstance(error, httpx2.HTTPStatusError) and error.response.status_code == 404:
            return UnknownKind(f"the API server knows no {error.request.url.path}")
        return Unreachable(f"the API server does not answer: {str(error) or type(error).__name__}")
    status = error.status
    code, text = int(status.code or 0), str(status.message or status.reason or error)
    if code == 404:
        return NotFound(text)
    if code == 409:
        return Exists(text) if status.reason == "AlreadyExists" else Changed(text)
    if code in (429, 500, 502, 503, 504):
        return Unreachable(f"the API server cannot do it now ({code}): {text}")
    return Rejected(code, text)
