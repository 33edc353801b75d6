"""JobSpec: what was asked for, checked once, never changed while the job runs."""

from dataclasses import dataclass, field

from midflight.deadlines import (
    FIRST_MEMBERS,
    GRACE,
    HANG,
    HOST_LEASE,
    LONGEST_ABSENCE,
    MEMBER_SILENCE,
)
from midflight.errors import UsageError
from midflight.protocol.dialect import OWN, Dialect


@dataclass(frozen=True)
class JobSpec:
    name: str
    command: tuple[str, ...]
    np: int
    min_np: int
    max_np: int
    elastic_timeout: float = LONGEST_ABSENCE  # how long fewer than min_np members are waited for
    start_timeout: float = FIRST_MEMBERS  # after it, min_np members are enough to start
    reset_limit: int | None = None  # None: any number of unplanned changes
    cooldown_min: float = 5.0  # how long a host that failed is avoided, at first
    cooldown_max: float = 300.0  # and at most
    grace: float = GRACE  # seconds between a preemption notice and the end
    hang_timeout: float = HANG  # a member that is alive but stands still while others wait
    silence: float = MEMBER_SILENCE  # seconds without a heartbeat before a member is looked at
    lease: float = HOST_LEASE  # seconds without a word before a whole host is given up
    come_back: float = 0.0  # the same, for a host that has yet to find a coordinator that moved
    timestamps: bool = False  # before each line of output
    output_dir: str | None = None  # where each member's output is kept as well
    eager: bool = False  # min_np members are enough to start once every listed host is there
    order: tuple[str, ...] = ()  # of the hosts, as they were written; ranks follow it
    ledger: str = ""  # the folder of the members' ledgers; "" for none
    dialect: Dialect = OWN  # in what it follows the habits of another system
    environment: dict[str, str] = field(default_factory=dict)  # for every member

    def __post_init__(self) -> None:
        if not self.command:
            raise UsageError("no command given; put it after `--`, as in `-- python train.py`")
        if self.min_np < 1:
            raise UsageError(f"--min-np must be at least 1, got {self.min_np}")
        if not self.min_np <= self.np <= self.max_np:
            raise UsageError(
                f"wanted min-np <= np <= max-np, got --min-np {self.min_np}, "
                f"-np {self.np}, --max-np {self.max_np}"
            )
        if self.cooldown_min < 0 or self.cooldown_max < self.cooldown_min:
            raise UsageError(
                f"--cooldown wants MIN <= MAX, both at least 0, "
                f"got {self.cooldown_min:g} {self.cooldown_max:g}"
            )
        if self.reset_limit is not None and self.reset_limit < 0:
            raise UsageError(f"--reset-limit must be at least 0, got {self.reset_limit}")
        for option in ("elastic_timeout", "start_timeout", "grace", "hang_timeout", "lease"):
            if getattr(self, option) <= 0:
                raise UsageError(
                    f"--{option.replace('_', '-')} must be more than 0 seconds, "
                    f"got {getattr(self, option):g}"
                )
