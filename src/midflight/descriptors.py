"""How many descriptors this process may open: as many as the system allows it.

The usual soft limit of 1,024 is there for programs that use select(). A coordinator has a
connection for each member and agent; a member has two descriptors for each other one, and as many
again while a change is prepared. Programs that are started for the user keep the user's limit.
"""

import resource

_inherited: tuple[int, int] | None = None  # None: it was never changed here


def raise_limit() -> None:
    """Lift the soft limit to the hard one."""
    global _inherited
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        _inherited = (soft, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def restore_limit() -> None:
    """In a child, before it becomes the user's program."""
    if _inherited is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _inherited)
