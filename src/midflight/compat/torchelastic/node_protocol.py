"""What a rendezvous is to a node, and what it may ask of the node.

A meeting finds out where the coordinator is, has it started here when it is this node's turn, and
looks for the next one when it is gone. It goes on until the node ends.
"""

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from midflight.compat.torchelastic.hosted import Hosted
from midflight.compat.torchelastic.relay import Seat
from midflight.coordinator.core.state import State
from midflight.coordinator.peers import Peers
from midflight.coordinator.saved_state import Saves
from midflight.protocol.job import JobSpec
from midflight.protocol.messages import KeepState


@dataclass(frozen=True)
class Identity:
    """Who this node is in the job."""

    name: str
    address: str  # what the other nodes reach it at
    spec: JobSpec  # what this node would run, if it carried the coordinator


@dataclass(frozen=True)
class Arrival:
    """What has to be settled before anything is started."""

    secret: bytes
    listener: socket.socket  # the node's door
    door: str  # HOST:PORT of it
    signpost: socket.socket | None = None  # at a port that workers are to use, too


class Node(Protocol):
    identity: Identity
    seat: Seat
    secret: bytes
    door: str
    kept: KeepState | None  # the newest state; None: not with this backend, or never joined
    hosted: Hosted | None  # the coordinator, while it runs here
    leaving: bool

    @property
    def met(self) -> bool:
        """Whether this node has ever been part of the job."""
        ...

    def kept_state(self) -> State | None:
        """What `kept` says, as one who carries it on sees it."""
        ...

    def host(
        self, state: State, make_saving: Callable[[Peers], Saves], lost: Iterable[str]
    ) -> Hosted:
        """Start the coordinator here, from this state; these hosts are known to be gone."""
        ...

    def listen_too(self, listener: socket.socket) -> None:
        """Open another door."""
        ...

    def job_ended(self, code: int) -> None:
        """The job was over before anybody could say so."""
        ...


class Meeting(Protocol):
    async def arrive(self, identity: Identity) -> Arrival: ...

    async def attend(self, node: Node) -> None:
        """For as long as the node is there."""
        ...

    async def depart(self, complete: bool) -> None:
        """The node ends; `complete`: and so did the job."""
        ...
