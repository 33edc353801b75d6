"""The sentences that users of horovodrun know, and when a job that is over ends with one of them.

Only wordings are here, and one pure decision: `last_words`, from what the coordinator has saved.
"""

from midflight.coordinator.core.state import Ended, State

INVALID_HOSTS = "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."
TOO_MANY = "Requested more processes ({np}) than there are available slots ({slots})"
NOT_NEGATIVE = "{name}={value} must be >= 0"
NOT_A_SHARE = "{name}={value} must be in [0, 1]"
COOLDOWN_LOW = (
    "Provided cooldown lower limit: {value} cannot be lower than default cooldown lower limit: "
    "{bound}"
)
COOLDOWN_HIGH = (
    "Provided cooldown upper limit: {value} cannot be higher than default cooldown upper limit: "
    "{bound}"
)
DISCOVERY_FAILED = "Failed to execute discovery script: {script}. Exit code: {code}"
NO_SLOTS = (
    "Timed out waiting for minimum number of slots to become available. Please check that you have "
    "enough resources to run at least {np} Horovod processes. Timeout after {seconds:g} seconds."
)
RESET_LIMIT = (
    "Horovod was shutdown because number of resets during elastic job exceeded limit: {limit}"
)
SHUT_DOWN = "Job has been shutdown, see above error messages for details."
PROCESS_FAILED = (
    "Horovod detected that one or more processes exited with non-zero status, thus causing the job "
    "to be terminated. The first process to do so was:\nProcess name: {host}[{slot}]\n"
    "Exit code: {code}\n"
)


def last_words(state: State | None) -> str:
    """Why a job failed, as Horovod puts it; `state` is None if it never got so far as to start."""
    if state is None:
        return SHUT_DOWN
    spec = state.spec
    if spec.reset_limit is not None and state.resets > spec.reset_limit:
        return RESET_LIMIT.format(limit=spec.reset_limit)
    if state.launched_at is None or state.waiting_since is not None:
        return NO_SLOTS.format(np=spec.min_np, seconds=spec.elastic_timeout)
    if state.first_failure is not None:
        return process_failed(state.first_failure)
    return SHUT_DOWN


def process_failed(end: Ended) -> str:
    """Horovod's words, and after them what the process itself said last."""
    words = PROCESS_FAILED.format(host=end.host, slot=end.slot, code=status(end.code))
    who = f"rank {end.rank}" if end.rank >= 0 else f"{end.host}[{end.slot}]"
    return f"{words}Reason: {who}: {end.reason}\n" if end.reason else words


def status(code: int) -> int:
    """As a shell tells it: a process that a signal ended has 128 more than its number."""
    return code if code >= 0 else 128 - code
