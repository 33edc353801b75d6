"""How many descriptors this process may open: enough for the largest worlds.

The usual soft limit of 1,024 is there for programs that use select(). A coordinator has a
connection for each member and agent; a member has two descriptors for each other one, and as many
again while a change is prepared. Programs that are started for the user keep the user's limit. What
a training script starts itself inherits the raised one; hence not as much as the system allows,
which can be a thousand million: some programs close every number up to the limit when they start.
"""

import resource

ENOUGH = 1 << 16  # 16,000 members, while a change is prepared
_inherited: tuple[int, int] | None = None  # None: it was never changed here


def raise_limit() -> None:
    """Lift the soft limit, as far as the system lets us."""
    global _inherited
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = raised(soft, hard)
    if wanted == soft:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # macOS has a lower limit than the one it tells
        return
    _inherited = (soft, hard)


def raised(soft: int, hard: int) -> int:
    """The soft limit to ask for; never less than there is."""
    if soft == resource.RLIM_INFINITY:
        return soft
    return max(soft, ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH))


def restore_limit() -> None:
    """In a child, before it becomes the user's program."""
    if _inherited is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _inherited)
