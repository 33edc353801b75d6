"""What a job's coordinator says of its training, asked as the operator would ask it."""

import asyncio
import base64
import time

from midflight.backends.training import status
from midflight.kubernetes import names
from midflight.protocol.messages import MemberStatus, Status
from midflight.protocol.wire import AsyncWire, dial
from tests.kubernetes.plane.api import Json
from tests.kubernetes.running.jobs import Jobs

SECONDS = 90.0
_PAUSE = 0.1  # a coordinator is asked; it does not call
_STEPS = 6  # more than a beat of one that is dead by now can still tell


def training(jobs: Jobs, job: str) -> Status | None:
    """None while nobody answers."""
    launcher = jobs.pods().get(f"{job}-launcher")
    secret = token_secret(jobs, job)
    address = launcher and launcher.get("status", {}).get("podIP")
    if not address or secret is None:
        return None
    token = base64.b64decode(secret["data"]["token"])

    async def call() -> AsyncWire:
        return await dial(f"{address}:{names.PORT}", "client", "test", token)

    return asyncio.run(status(call))


def token_secret(jobs: Jobs, job: str) -> Json | None:
    """Its name is known to the operator alone."""
    uid = jobs.get(job)["metadata"]["uid"]
    for found in jobs.cluster.list("Secret", jobs.namespace):
        meta = found["metadata"]
        if meta["name"].startswith(f"{job}-token-") and meta["ownerReferences"][0]["uid"] == uid:
            return found
    return None


def members(found: Status | None) -> list[MemberStatus]:
    """Those that train."""
    return [each for each in found.members if each.rank is not None] if found else []


def wait_members(jobs: Jobs, job: str, count: int, seconds: float = SECONDS) -> Status:
    """So many train, in a world that stands, on hosts that are there, and each makes steps.

    Each, because a coordinator that has just taken a run up still counts those of whom it has not
    heard yet, and knows a step from before: one who comes back seems to take all of them on.
    """
    deadline = time.monotonic() + seconds
    found: Status | None = None
    begun: Status | None = None  # in this world
    while time.monotonic() < deadline:
        found = training(jobs, job)
        here = members(found)
        hosts = set(jobs.hostfile(job).split()) if found else set()
        there = all(f"{each.host}:1" in hosts for each in here)
        if not found or found.phase != "stable" or len(here) != count or not there:
            begun = None
        elif begun is None or begun.generation != found.generation:
            begun = found
        elif _slowest(found) >= _slowest(begun) + _STEPS:
            return found
        time.sleep(_PAUSE)
    raise AssertionError(
        f"{count} members do not train after {seconds:g} s: {found}\n{jobs.told()}"
    )


def _slowest(found: Status) -> int:
    return min(each.step for each in members(found))
