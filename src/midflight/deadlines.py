"""How long who waits for whom, in seconds, where waits of several programs depend on each other.

A resize has one clock, the coordinator's. It takes a resize back after its timeout, unless the
switch step is published: then it answers when the change is done. Whoever asks waits for that.

Waits that concern one program alone are constants of the module that waits.
"""

RESIZE = 60.0  # the timeout of a resize, where the user gives none

# A member's heartbeat. The coordinator tells a large world to beat less often, and waits longer for
# each beat in proportion; it stays well below the lease of a host.
BEAT = 0.2
LONGEST_BEAT = 1.0
BEATS_HEARD = 2500  # in a second, of all members together

# An instance is stopped: SIGTERM, after the grace period SIGKILL, and SIGKILL again if it is late.
STOP_GRACE = 10.0
STOP_LATE = 5.0
JOB_GONE = 120.0  # `delete`, for all instances of a job to be gone

# The server of this machine, and those who ask it.
SERVER_START = 20.0  # until it answers
SERVER_END = 10.0  # until it has let go of its folder
SERVER_ANSWER = 30.0  # beyond what a question asks the server to wait
LONG_POLL = 20.0  # of one question that waits; then it is asked again


def beat_seconds(members: int) -> float:
    """How often each of so many members says that it is alive."""
    return min(LONGEST_BEAT, max(BEAT, members / BEATS_HEARD))
