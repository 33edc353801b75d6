"""The exceptions of Horovod's API, and when they are raised.

RuntimeError
`-- HorovodInternalError   a collective failed: a member was lost; elastic.run starts over
    `-- InvalidRequest     the request itself is wrong: starting over would not help
HostsUpdatedInterrupt      hosts came or went; raised by commit() and check_host_updates() only
"""


class HorovodInternalError(RuntimeError):
    """A collective did not happen, because a member was lost."""


class InvalidRequest(HorovodInternalError, ValueError):
    """Members asked for different things under one name, or one member asked twice."""


class HostsUpdatedInterrupt(RuntimeError):
    """The world is about to change; nothing was lost.

    `skip_sync`: members only left, so that those who stay need not exchange their states.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("hosts have come or gone")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Never raised here: there is only one version."""
