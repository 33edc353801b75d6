"""Asking the training of a job: what it does now, and whether it goes on with another size.

A job that will never have a run is answered for at once; for all others the coordinator of the
job's run answers, through `CoordinatorClient`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from midflight.coordinator.client import CoordinatorClient, Dial, Patience
from midflight.errors import MidflightError
from midflight.protocol.messages import ResizeRequested, Status

NO_TRAINING = "no training takes part: the command does not use midflight run or horovodrun"


@dataclass(frozen=True)
class Wish:
    """`members`, the size to come to; or, if that is None, the hosts whose members leave."""

    members: int | None
    leaving: tuple[str, ...] = ()
    id: str = ""  # under which it may be asked for again
    again: bool = False  # a former server has asked already, and may have been heard


async def status(dial: Dial) -> Status | None:
    """What the coordinator says now, None if nobody answers soon."""
    try:
        return await CoordinatorClient(dial).status()
    except MidflightError:
        return None


async def resize(
    dial: Dial,
    wish: Wish,
    timeout: float,
    progress: Callable[[str], None],
    run_expected: bool = True,
) -> tuple[bool, str]:
    """Whether the training has done as wished, and its words for that.

    `run_expected`: there is a run, or the command is one that starts it, so it is waited for.
    """
    if not run_expected:
        return True, NO_TRAINING
    if wish.members is None and not wish.leaving:
        return True, "none of its members has to leave"
    client = CoordinatorClient(dial)
    try:
        request = ResizeRequested(wish.members, 0, 0, (), timeout, wish.id, wish.leaving)
        patience = Patience(reach=timeout, asked_before=wish.again)
        ended = await client.resize(request, progress, patience)
    except MidflightError as error:
        return False, str(error)
    return ended.ok, ended.detail
