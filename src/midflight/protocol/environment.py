"""WorkerEnv: the one thing an agent tells a training process, through its environment.

`to_env` writes it, `from_env` reads it once. Beside Midflight's own variables it carries those
that torchrun sets, so that a script that knows only torch.distributed finds what it expects. The
secret itself never travels: members read it from the token file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from midflight.errors import ProtocolError, UsageError
from midflight.quantities import quantity

PREFIX = "MIDFLIGHT_"
JOINER = PREFIX + "JOINER"
JOIN_BANDWIDTH = PREFIX + "JOIN_BANDWIDTH"
# Where they are kept in a process whose framework is not to see torchrun's.
RANK, SIZE = PREFIX + "RANK", PREFIX + "SIZE"
TORCHRUN = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
    "TORCHELASTIC_USE_AGENT_STORE",
)


@dataclass(frozen=True)
class WorkerEnv:
    run: str
    member: str
    host: str
    slot: int
    address: str  # of this host, as the other members reach it
    coordinator: str  # HOST:PORT
    token_file: str
    elastic_timeout: float
    grace: float
    ledger: str  # folder for the ledgers; "" for none
    warm: bool = False
    joiner: bool = False  # training is under way already; False: this one is there from the start
    rank: int = 0  # what it will be, as far as the coordinator knew when it was started
    size: int = 1
    join_bandwidth: float | None = None  # bytes per second of a state that follows; None: no limit

    def to_env(self) -> dict[str, str]:
        return {
            PREFIX + "RUN": self.run,
            PREFIX + "MEMBER": self.member,
            PREFIX + "HOST": self.host,
            PREFIX + "SLOT": str(self.slot),
            PREFIX + "ADDRESS": self.address,
            PREFIX + "COORDINATOR": self.coordinator,
            PREFIX + "TOKEN_FILE": self.token_file,
            PREFIX + "ELASTIC_TIMEOUT": f"{self.elastic_timeout:g}",
            PREFIX + "GRACE": f"{self.grace:g}",
            PREFIX + "LEDGER": self.ledger,
            PREFIX + "WARM": "1" if self.warm else "0",
            "PYTHONUNBUFFERED": "1",
        }

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "WorkerEnv | None":
        """None when the process was not started by an agent: a world of one."""
        if PREFIX + "MEMBER" not in env:
            return None
        try:
            return cls(
                run=env[PREFIX + "RUN"],
                member=env[PREFIX + "MEMBER"],
                host=env[PREFIX + "HOST"],
                slot=int(env[PREFIX + "SLOT"]),
                address=env[PREFIX + "ADDRESS"],
                coordinator=env[PREFIX + "COORDINATOR"],
                token_file=env[PREFIX + "TOKEN_FILE"],
                elastic_timeout=float(env[PREFIX + "ELASTIC_TIMEOUT"]),
                grace=float(env[PREFIX + "GRACE"]),
                ledger=env[PREFIX + "LEDGER"],
                warm=env[PREFIX + "WARM"] == "1",
                joiner=env.get(JOINER) == "1",
                rank=int(env.get(RANK, env.get("RANK", "0"))),
                size=int(env.get(SIZE, env.get("WORLD_SIZE", "1"))),
                join_bandwidth=quantity(env.get(JOIN_BANDWIDTH, "0")) or None,
            )
        except (KeyError, ValueError, UsageError) as error:
            raise ProtocolError(f"the MIDFLIGHT_ variables are damaged: {error}") from None


@dataclass(frozen=True)
class TorchrunEnv:
    """The variables of torchrun, for scripts that never call Midflight."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    group_rank: int
    group_world_size: int
    master_addr: str
    master_port: int
    restart_count: int
    max_restarts: int
    run_id: str

    def to_env(self) -> dict[str, str]:
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "GROUP_RANK": str(self.group_rank),
            "GROUP_WORLD_SIZE": str(self.group_world_size),
            "ROLE_RANK": str(self.rank),
            "ROLE_WORLD_SIZE": str(self.world_size),
            "ROLE_NAME": "default",
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "TORCHELASTIC_RESTART_COUNT": str(self.restart_count),
            "TORCHELASTIC_MAX_RESTARTS": str(self.max_restarts),
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
