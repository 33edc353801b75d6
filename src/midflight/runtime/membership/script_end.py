"""How a script left its job, told to the coordinator once for all members."""

import sys
import traceback
from collections.abc import Callable
from typing import Any

from midflight.errors import GivenUp
from midflight.protocol.messages import MemberFailed
from midflight.runtime.data.plan import explain_single
from midflight.runtime.data.sampler import Issued
from midflight.runtime.membership.member import Membership

BATCH_NORM_REFUSES = "more than 1 value per channel"  # torch's words


def is_orderly_exit(error: BaseException) -> bool:
    """Whether this is a script's `sys.exit()`; with another code, its agent reports a failure."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


def report(membership: Membership, error: Exception, issued: Issued | None = None) -> None:
    """The script raised, in the step that this was `issued` for: the coordinator shows it once."""
    if isinstance(error, GivenUp):  # not the script's fault: no traceback
        if not membership.link.send(membership.beat()):
            print(f"midflight: {error}", file=sys.stderr)
        _silence(error)
        return
    text = "".join(traceback.format_exception(error))
    if issued is not None and len(issued.indices) == 1 and BATCH_NORM_REFUSES in str(error):
        seat = issued.seat
        text += f"midflight: {explain_single(issued.extent, seat.sharers or seat.size)}\n"
    if membership.link.send(MemberFailed(text, type(error).__name__)):
        _silence(error)


def _silence(error: Exception) -> None:
    """Python is not to print what the coordinator shows already."""
    usual: Callable[..., Any] = sys.excepthook

    def hook(kind: Any, value: Any, trace: Any) -> None:
        if value is not error:
            usual(kind, value, trace)

    sys.excepthook = hook
