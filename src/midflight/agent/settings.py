"""What an agent was told at its start, and the environment its members get from it.

The environment of a member is the agent's own, then what Midflight says (`WorkerEnv`), then what
the coordinator's order adds, which has the last word. Only what decides which code a program loads
(`LD_*`, `PYTHON*` and the like) is this host's own affair, and ignored in an order. Every process
below an agent also carries the agent's mark, by which the guard finds those that have left their
process group.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from midflight import shims
from midflight.agent.finding import address_now
from midflight.protocol.environment import WorkerEnv
from midflight.protocol.messages import StartMember

MARK = "MIDFLIGHT_AGENT"
_LOADER = re.compile(r"(LD|DYLD)_.*|PYTHON.*|GLIBC_TUNABLES|BASH_ENV|ENV")
Adapt = Callable[[StartMember], dict[str, str]]  # the variables of an order, as they hold here


@dataclass(frozen=True)
class Settings:
    join: str  # HOST:PORT of the coordinator
    token_file: str
    secret: bytes = field(repr=False)
    name: str
    slots: int
    address: str | None  # None: the local address of the connection to the coordinator
    warm: int  # standbys to keep ready; 0: every member starts cold
    grace: float
    join_timeout: float
    reconnect_timeout: float
    verbose: bool
    environ: dict[str, str] = field(repr=False)
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    run_dir: str | None = None  # None: the coordinator stays where it is
    command: tuple[str, ...] | None = None  # what members run here; None: what the order says
    adapt: Adapt | None = None  # None: members get the order's variables as they are
    warm_later: bool = False  # the first members start cold, and nobody waits for a standby
    door: str = ""  # HOST:PORT where this process would carry the coordinator on

    @property
    def coordinator(self) -> str:
        """HOST:PORT to dial now."""
        return self.join if self.run_dir is None else address_now(self.run_dir, self.join)

    def base_environment(self) -> dict[str, str]:
        """What every process below this agent gets."""
        environment = {**self.environ, **shims.environment(self.environ), MARK: self.mark}
        if self.slots > 1:  # members that share a host would fight for its cores; as torchrun does
            environment.setdefault("OMP_NUM_THREADS", "1")
        return environment

    def member_environment(self, order: StartMember, address: str, warm: bool) -> dict[str, str]:
        worker = WorkerEnv(
            run=order.run,
            member=order.member,
            host=self.name,
            slot=order.slot,
            address=address,
            coordinator=self.coordinator,
            token_file=self.token_file,
            elastic_timeout=order.elastic_timeout,
            grace=order.grace,
            ledger=order.ledger,
            warm=warm,
        )
        order = replace(order, environment=_without_loaders(order.environment))
        ordered = order.environment if self.adapt is None else self.adapt(order)
        return {**self.base_environment(), **worker.to_env(), **ordered}


def _without_loaders(ordered: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in ordered.items() if not _LOADER.fullmatch(name)}
