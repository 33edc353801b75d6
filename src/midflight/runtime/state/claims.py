"""What members say of their state as they enter a world, and whose state is the job's: pure.

The furthest counts: the newest generation in which a step was completed, then the number of steps,
then the epoch. Members that are equally far must also be equal, by a digest of all that is no
tensor and a checksum of the tensors. Where they are not, the state that most of them have is the
job's (of two equally frequent ones that of the lower rank), and the others receive it. A state that
cannot be handed over wins only if no other can.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

NOTHING = -1  # the step of a member that holds no state


@dataclass(frozen=True)
class Claim:
    """How far a member is, and with which state."""

    generation: int  # in which the last step was completed; 0: in none
    step: int  # how many steps are complete
    epoch: int
    digest: int = 0  # of what is no tensor; 0: unknown, because it cannot be handed over
    checksum: int = 0  # of the tensors
    can_give: bool = False
    has_room: bool = True  # for another state beside its own, where its own lies
    background: bool = False  # it may hand the state over, or receive it, while it trains

    @property
    def progress(self) -> tuple[int, int, int]:
        return self.generation, self.step, self.epoch

    @property
    def content(self) -> tuple[int, int]:
        return self.digest, self.checksum

    def to_numbers(self) -> list[int]:
        return [int(number) for number in astuple(self)]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> "Claim":
        generation, step, epoch, digest, checksum, *flags = numbers
        return cls(generation, step, epoch, digest, checksum, *map(bool, flags))


NEWCOMER = Claim(generation=0, step=NOTHING, epoch=0)


@dataclass(frozen=True)
class Outcome:
    """Ranks, by what they have to do with the state."""

    holders: tuple[int, ...]  # their state is the job's
    givers: tuple[int, ...]  # those of them who can hand it over
    behind: tuple[int, ...]  # newcomers, and whoever is not as far
    differing: tuple[int, ...]  # as far as the holders, with another state
    cramped: tuple[int, ...]  # those who receive in host memory, for want of room
    background: bool = False  # the receivers get it while all train

    @property
    def receivers(self) -> tuple[int, ...]:
        return tuple(sorted((*self.behind, *self.differing)))


def settle(claims: Sequence[Claim]) -> Outcome:
    """Whose state is the job's; all members work it out from the same claims, by rank."""
    best = max(claim.progress for claim in claims)
    furthest = [rank for rank, claim in enumerate(claims) if claim.progress == best]
    if claims[furthest[0]].step == NOTHING:  # the very beginning: rank 0's initial weights
        furthest = furthest[:1]
    equal: dict[tuple[int, int], list[int]] = {}
    for rank in furthest:
        equal.setdefault(claims[rank].content, []).append(rank)
    able = [ranks for ranks in equal.values() if any(claims[rank].can_give for rank in ranks)]
    holders = max(able or equal.values(), key=len)
    receivers = [rank for rank in range(len(claims)) if rank not in holders]
    newcomers = [rank for rank, claim in enumerate(claims) if claim.step == NOTHING]
    return Outcome(
        holders=tuple(holders),
        givers=tuple(rank for rank in holders if claims[rank].can_give),
        behind=tuple(rank for rank in receivers if rank not in furthest),
        differing=tuple(rank for rank in receivers if rank in furthest),
        cramped=tuple(rank for rank in receivers if not claims[rank].has_room),
        background=all(claim.background for claim in claims)
        and len(receivers) > 0
        and receivers == newcomers == [*range(len(holders), len(claims))],
    )
