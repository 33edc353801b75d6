"""How long who waits for whom, in seconds, where waits of several programs depend on each other.

A resize, from the inside out. The coordinator takes it back after its timeout, unless the members
have begun to switch: that cannot be taken back, and ends a little later. Whoever asks the
coordinator waits for it. The controller counts an operation as failed when nothing was heard
OPERATION_SLACK after the timeout. Whoever follows the operation waits longest, and hears all that.

Waits that concern one program alone are constants of the module that waits.
"""

RESIZE = 60.0  # the timeout of a resize, where the user gives none
RESIZE_LATE = 60.0  # beyond the timeout: those who ask the coordinator
OPERATION_SLACK = 30.0  # beyond the timeout: the controller, for the training's answer
OPERATION_LATE = 120.0  # beyond the timeout: the command line, for the operation's end

# An instance is stopped: SIGTERM, after the grace period SIGKILL, and SIGKILL again if it is late.
STOP_GRACE = 10.0
STOP_LATE = 5.0
JOB_GONE = 120.0  # `delete`, for all instances of a job to be gone

# The server of this machine, and those who ask it.
SERVER_START = 20.0  # until it answers
SERVER_END = 10.0  # until it has let go of its folder
SERVER_ANSWER = 30.0  # beyond what a question asks the server to wait
LONG_POLL = 20.0  # of one question that waits; then it is asked again
