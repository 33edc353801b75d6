"""WorkerEnv: the one thing an agent tells a training process, through its environment.

`to_env` writes it, `from_env` reads it once. Beside Midflight's own variables it carries those
that torchrun sets, so that a script that knows only torch.distributed finds what it expects, and
under horovodrun those of Horovod. The secret itself never travels: members read it from the token
file.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from midflight.errors import ProtocolError
from midflight.protocol.world import World

PREFIX = "MIDFLIGHT_"
JOINER = PREFIX + "JOINER"


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
                rank=int(env.get("RANK", 0)),
                size=int(env.get("WORLD_SIZE", 1)),
            )
        except (KeyError, ValueError) as error:
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


@dataclass(frozen=True)
class HorovodEnv:
    """The variables of horovodrun. They tell what was true at the start, as there."""

    hostname: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int  # among the hosts that have this local rank
    cross_size: int
    rendezvous_addr: str
    rendezvous_port: int
    elastic: bool

    @classmethod
    def of(cls, world: World, name: str, port: int, elastic: bool) -> "HorovodEnv":
        """What a member of this world is told; `port` is where rank 0 can be met."""
        rank, local_rank = world.rank(name), world.local_rank(name)
        peers = [other for other in world.names if world.local_rank(other) == local_rank]
        return cls(
            hostname=world.members[rank].host,
            rank=rank,
            size=world.size,
            local_rank=local_rank,
            local_size=world.local_size(name),
            cross_rank=peers.index(name),
            cross_size=len(peers),
            rendezvous_addr=world.members[0].address,
            rendezvous_port=port,
            elastic=elastic,
        )

    def to_env(self) -> dict[str, str]:
        return {
            "HOROVOD_HOSTNAME": self.hostname,
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(self.size),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
            "HOROVOD_LOCAL_SIZE": str(self.local_size),
            "HOROVOD_CROSS_RANK": str(self.cross_rank),
            "HOROVOD_CROSS_SIZE": str(self.cross_size),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self.rendezvous_addr,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.rendezvous_port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            **({"HOROVOD_ELASTIC": "1"} if self.elastic else {}),
        }
