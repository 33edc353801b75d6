"""Every error Midflight raises on purpose. A message says what was wanted, what came, what to do.

MidflightError
|-- UsageError            a flag, option or argument is wrong
|-- ProtocolError         a peer sent what this version does not understand
|   `-- HandshakeRefused  the other side closed the door, and said why
|-- ConnectionLost        the other side of a wire is gone
|   `-- FrameForged       somebody on the way has changed what is said on it
|-- Unreachable           nobody answers at an address
|   `-- RunOver           nor will anybody: the run that was there has ended
|-- StoreError            the store cannot do what was asked
|   |-- StoreUnavailable  it does not answer
|   |-- Conflict          somebody else changed the entry first
|   |-- SealBroken        what is there was not written by this run
|   `-- LeaseEnded        a lease, and what was bound to it, is no longer there
|-- DataError             a dataset cannot be fed to an elastic job
|-- StateError            training state cannot be handed to another member
|-- WorldChanged          the step in flight did not happen: the world is another one now
|-- TorchUnsupported      the installed torch lacks what the runtime needs of it
|-- GivenUp               the job went on without this member, or waited too long
|-- JobFailed             the job as a whole ended badly
|   `-- ScriptFailed      the host discovery script did
|-- TimedOut              what was waited for did not happen in time
`-- Refused               the server will not do what was asked
    |-- NotFound          there is no such job, instance, operation or node
    `-- Exists            there is one of that name already
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from midflight.store.interface import Entry


class MidflightError(Exception):
    """The root of the tree."""


class UsageError(MidflightError):
    """A flag, option or argument is wrong."""


class ProtocolError(MidflightError):
    """A peer sent what this version does not understand."""


class HandshakeRefused(ProtocolError):
    """The other side closed the door, and said why."""


class ConnectionLost(MidflightError):
    """The other side of a wire is gone."""


class FrameForged(ConnectionLost):
    """Somebody on the way has changed what is said on a wire; it cannot be used any more."""


class Unreachable(MidflightError):
    """Nobody answers at an address."""


class RunOver(Unreachable):
    """Nor will anybody: the run that was there has ended."""


class StoreError(MidflightError):
    """The store cannot do what was asked."""


class StoreUnavailable(StoreError):
    """The store does not answer."""


class Conflict(StoreError):
    """Somebody else changed the entry first; `current` is what is there now, None if nothing is."""

    def __init__(self, key: str, expected: int, current: "Entry | None") -> None:
        found = f"version {current.version}" if current else "no entry"
        wanted = f"version {expected}" if expected else "no entry"
        super().__init__(
            f"store key {key!r}: wanted {wanted}, found {found}; read it and decide again"
        )
        self.key = key
        self.expected = expected
        self.current = current


class SealBroken(StoreError):
    """What is in the store was not written with this run's token, or was changed since."""


class LeaseEnded(StoreError):
    """A lease, and what was bound to it, is no longer there."""


class DataError(MidflightError):
    """A dataset cannot be fed to an elastic job."""


class StateError(MidflightError):
    """Training state cannot be handed to another member."""


class WorldChanged(MidflightError):
    """The step in flight did not happen: the world is another one now."""


class TorchUnsupported(MidflightError):
    """The installed torch lacks what the runtime needs of it."""


class GivenUp(MidflightError):
    """The job went on without this member, or the member waited too long for a world."""


class JobFailed(MidflightError):
    """The job as a whole ended badly."""


class ScriptFailed(JobFailed):
    """The host discovery script ended with something else than 0 (negative: by a signal)."""

    def __init__(self, script: str, code: int, what: str) -> None:
        super().__init__(f"the host discovery script {script!r} {what}")
        self.script = script
        self.code = code


class TimedOut(MidflightError):
    """What was waited for did not happen in time."""


class Refused(MidflightError):
    """The server will not do what was asked."""


class NotFound(Refused):
    """There is no such job, instance, operation or node."""


class Exists(Refused):
    """There is one of that name already."""
