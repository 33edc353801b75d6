"""What is to be done for a job, once its state is saved, and the records of what was decided.

An order may be given twice (whoever gives it may die in between), so each must be harmless the
second time. Its outcomes are the events named beside it, or are found by observing.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FetchCode:
    """CodeFetched or CodeNotFetched follows."""

    key: str


@dataclass(frozen=True)
class StartInstance:
    """InstanceStarted, or InstanceNotStarted, follows; some time later InstanceEnded."""

    key: str
    instance: str
    attempt: int


@dataclass(frozen=True)
class StopInstance:
    """SIGTERM, and SIGKILL after `grace` seconds; InstanceEnded follows. 0: SIGKILL at once."""

    key: str
    instance: str
    attempt: int
    grace: float
    force: bool = False  # it is late, or nobody answers for it: it is not waited for


@dataclass(frozen=True)
class WriteHosts:
    """Let the job's own discovery say which workers it has (its hostfile)."""

    key: str
    hosts: dict[str, int]  # instance name to slots


@dataclass(frozen=True)
class AskResize:
    """Ask the training to go on with another number of members, and ResizeEnded follows.

    Exactly one of the two is meant: `members`, the size to come to, or `leaving`, the workers
    whose members are to leave. A job whose command holds no Midflight training answers at once.
    """

    key: str
    operation: str
    members: int | None
    leaving: tuple[str, ...]
    timeout: float
    request: str  # asked again under this id, it is the same request
    again: bool = False  # somebody who is gone has asked before: the answer may have been lost


@dataclass(frozen=True)
class Record:
    """A line for `get -e` and `events`."""

    key: str
    source: str  # job/NAME or instance/NAME or node/NAME
    kind: str  # Normal | Warning
    reason: str  # one word: Submitted, Scheduled, Started, Failed, ...
    message: str


Order = FetchCode | StartInstance | StopInstance | WriteHosts  # for the place of the job
