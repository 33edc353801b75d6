"""Which measurements a call of `python -m bench` makes, in which order. Pure.

Repeats are the outermost loop and systems the innermost one, so that what is compared is measured
side by side and a slow minute of the machine falls on all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bench.systems import Shape

CASES = (
    "steady",
    "resize",
    "failure",
    "join",
    "checkpoint",
    "coordinator",
    "flight",
    "wire",
    "cli",
    "dropin",
    "kubernetes",
    "large",
)
BY_NAME = ("large",)  # left out of "all": it wants a GPU, or gigabytes and patience
ALONE = ("coordinator", "flight", "wire", "cli", "kubernetes")  # nobody else has one to measure
SYSTEMS = ("ddp", "midflight", "torchrun", "torchft")
WAYS = ("midflight-blocking", "midflight-shadow")  # in which a newcomer receives the state
DROPINS = ("ddp", "horovod", "midflight-torchrun", "torchrun")  # what the case dropin compares
# (megabytes, workers) of each case, unless the command line names others. The workers are those
# before the event, so that a resize from 3 makes a world of 4.
SIZES = {
    "steady": ((1, 2), (1, 3), (1, 4), (100, 2), (100, 3), (100, 4)),
    "resize": ((1, 2), (1, 3), (100, 2), (100, 3)),
    "failure": ((1, 3), (1, 6), (100, 3)),
    "join": ((1, 2),),
    "checkpoint": ((100, 1),),
    "coordinator": ((0, 0),),
    "flight": ((0, 0),),
    "wire": ((0, 0),),
    "cli": ((0, 0),),
    "kubernetes": ((0, 0),),
    "dropin": ((0, 2), (1, 2), (100, 2)),
    "large": ((1276, 2),),
}
CAN = {
    "ddp": {"steady"},
    "midflight": {
        "steady",
        "resize",
        "sigkill",
        "sigstop",
        "warm join",
        "command join",
        "cold join",
        "checkpoint",
    },
    # A stopped worker is nothing that torchrun would ever notice. "host" is a worker and its agent
    # at once; how torchrun heals differs, so both are shown.
    "torchrun": {"steady", "resize", "sigkill", "host", "cold join"},
    **{name: {"resize", "large"} for name in WAYS},
    "horovod": {"steady", "resize", "sigkill"},
    "midflight-torchrun": {"resize", "sigkill", "host"},  # its steps are the script's own
    "torchft": {"steady", "resize", "sigkill", "sigstop", "cold join"},
}
STANDBYS = 2


@dataclass(frozen=True)
class Settings:
    cases: Sequence[str] = CASES
    systems: Sequence[str] = SYSTEMS
    megabytes: Sequence[int] = ()  # none: the case's own
    workers: Sequence[int] = ()  # none: the case's own
    members: Sequence[int] = ()  # of the case coordinator; none: its own
    repeats: int = 5
    rounds: int = 12  # turns of each system within one repeat of the steady case


@dataclass(frozen=True)
class Item:
    """One repeat of one measurement."""

    case: str
    kind: str  # what happens to the fleet: an entry of CAN
    systems: tuple[str, ...]  # several at once in the steady case only
    shape: Shape = field(default=Shape(0, 0))
    repeat: int = 0

    def __str__(self) -> str:
        size = f"{self.shape.megabytes} MB, {self.shape.workers} workers"
        kind = f" ({self.kind})" if self.kind != self.case else ""
        return f"{self.repeat + 1}: {self.case}{kind}, {size}: {', '.join(self.systems)}"


def plan(settings: Settings) -> Iterator[Item]:
    for repeat in range(settings.repeats):
        for case in settings.cases:
            for megabytes, workers in sizes(case, settings):
                for kind in kinds(case, megabytes, workers):
                    known = systems(case, settings)
                    able = tuple(name for name in known if kind in CAN[name])
                    if case == "dropin" and kind == "steady":
                        able = ("ddp", "horovod")
                    shape = shape_for(kind, megabytes, workers)
                    if kind == "steady" and able:
                        yield Item(case, kind, able, shape, repeat)
                    elif kind in ALONE:
                        yield Item(case, kind, ("midflight",), shape, repeat)
                    else:
                        for name in able:
                            yield Item(case, kind, (name,), shape, repeat)


def systems(case: str, settings: Settings) -> Sequence[str]:
    """Which ones the case compares, of those on the command line."""
    if case == "dropin":
        return DROPINS
    if case == "large":
        return [name for name in WAYS if name in settings.systems] or WAYS
    return settings.systems


def sizes(case: str, settings: Settings) -> list[tuple[int, int]]:
    """The case's own sizes, with what the command line names in their place."""
    if case in ALONE:
        return list(SIZES[case])
    megabytes = settings.megabytes or sorted({size for size, _ in SIZES[case]})
    own = {size: [w for mb, w in SIZES[case] if mb == size] for size in megabytes}
    default = sorted({workers for _, workers in SIZES[case]})
    return [(mb, w) for mb in megabytes for w in settings.workers or own[mb] or default]


def kinds(case: str, megabytes: int, workers: int) -> list[str]:
    if case == "failure":
        # A hang costs its time-out, whatever the size of world and model: one figure is enough.
        return ["sigkill", "host", *(["sigstop"] if workers == 3 and megabytes < 10 else [])]
    if case == "dropin":
        return ["steady"] + (["resize", "sigkill"] if megabytes == 1 else [])
    if case == "join":
        return ["warm join", "command join", "cold join"]
    return [case]


def shape_for(kind: str, megabytes: int, workers: int) -> Shape:
    standbys = STANDBYS if kind in ("resize", "warm join", "command join", "large") else 0
    gated, command = kind == "steady", kind == "command join"
    return Shape(megabytes, workers, gated=gated, warm=standbys, command=command)
