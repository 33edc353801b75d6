"""How a script left its job, told to the coordinator once for all members."""

import sys
import traceback
from collections.abc import Callable
from typing import Any

from midflight.errors import GivenUp
from midflight.protocol.messages import MemberFailed
from midflight.runtime.membership.member import Membership


def is_orderly_exit(error: BaseException) -> bool:
    """Whether this is a script's `sys.exit()`; with another code, its agent reports a failure."""
    return isinstance(error, SystemExit) and error.code in (None, 0)


def report(membership: Membership, error: Exception) -> None:
    """The script raised: the coordinator shows it, once for all members."""
    if isinstance(error, GivenUp):  # not the script's fault: no traceback
        if not membership.link.send(membership.beat()):
            print(f"midflight: {error}", file=sys.stderr)
        _silence(error)
        return
    text = "".join(traceback.format_exception(error))
    if membership.link.send(MemberFailed(text, type(error).__name__)):
        _silence(error)


def _silence(error: Exception) -> None:
    """Python is not to print what the coordinator shows already."""
    usual: Callable[..., Any] = sys.excepthook

    def hook(kind: Any, value: Any, trace: Any) -> None:
        if value is not error:
            usual(kind, value, trace)

    sys.excepthook = hook
