"""Dialect: in what a job follows the habits of another system, as plain values.

The core follows them without knowing whose they are; the drop-in that starts the job fills them in.
The default is Midflight's own way. Values of `environment`, and the lines and names under output,
are templates for `str.format`.
"""

from dataclasses import dataclass, field

from midflight.errors import UsageError
from midflight.protocol.world import World


@dataclass(frozen=True)
class Dialect:
    # --- failures, and the start
    max_restarts: int | None = None  # restarts of a script without Midflight; None: no such rule
    last_call: float | None = None  # how long more than min_np are waited for, once these fit
    hosts_by_name: bool = False  # ranks follow the names of the hosts, not the order they came in
    fixed_size: bool = False  # the first process that fails ends the job
    warm_later: bool = False  # the first members of a host start cold, standbys are for newcomers
    takes_all_slots: bool = False  # a host that comes makes the wanted size larger, up to max_np
    # --- what members find in their environment, beside what torch needs; see `environment_of`
    environment: dict[str, str] = field(default_factory=dict)
    # --- output
    by_rank: bool = False  # messages call members by rank and host, not by name
    log_level: str = ""  # own lines look like those of Python's logging, from it on; "": like ours
    prefix: str = "[{label}]<{stream}>:"  # before each line of a member; {label}: its rank
    output_folder: str = "{member}"  # of a member's files: {member}, {rank}, {width}
    ended_badly: str = ""  # a line about a process that ended so: {rank}, {status}; "": none

    def __post_init__(self) -> None:
        if self.max_restarts is not None and self.max_restarts < 0:
            raise UsageError(f"--max-restarts must be at least 0, got {self.max_restarts}")


OWN = Dialect()


def environment_of(dialect: Dialect, world: World, name: str, port: int) -> dict[str, str]:
    """The dialect's variables for a member of this world; `port` is where rank 0 can be met."""
    rank, local_rank = world.rank(name), world.local_rank(name)
    peers = world.peers(name)
    facts = {
        "host": world.members[rank].host,
        "rank": rank,
        "size": world.size,
        "local_rank": local_rank,
        "local_size": world.local_size(name),
        "cross_rank": peers.index(name),  # among the hosts that have this local rank
        "cross_size": len(peers),
        "master_address": world.members[0].address,
        "master_port": port,
    }
    return {key: value.format(**facts) for key, value in dialect.environment.items()}
