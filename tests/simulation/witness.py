"""Sees everything that happens, writes the story down, and checks what must always be true."""

import asyncio
import zlib
from collections.abc import Callable, Sequence

from midflight.coordinator.core.state import OVER, Change, Phase, Stage, State
from midflight.coordinator.core.switch_step import PREFETCH_SECONDS
from midflight.protocol.world import World
from midflight.runtime.data.plan import Cursor, Extent, Plan

LATEST_SWITCH = 2 * PREFETCH_SECONDS  # members may be slower than they were so far
STEPS_AHEAD = 4  # the one in flight, those until the news is there, and one that nobody has told of
MOST_FINDINGS = 10  # what goes wrong once often does so in each step that follows
Intervals = tuple[tuple[int, int], ...]


def fold(weights: int, extent: Extent, used: Intervals) -> int:
    """The weights after a step with these samples: any other samples give others."""
    return zlib.crc32(f"{weights} {extent.epoch} {used}".encode())


def rounded(before: int, generation: int) -> int:
    """The last bits of the weights: a step that is repeated in another world gives others."""
    return zlib.crc32(f"{before} {generation}".encode())


def joined(parts: Sequence[Intervals]) -> Intervals:
    """The samples of all members, neighbours put together."""
    whole: list[tuple[int, int]] = []
    for start, stop in sorted(interval for part in parts for interval in part):
        if whole and whole[-1][1] == start:
            whole[-1] = (whole[-1][0], stop)
        else:
            whole.append((start, stop))
    return tuple(whole)


def expected_weights(plan: Plan, epochs: int) -> list[int]:
    """After each step of a training that nothing disturbs."""
    weights, cursor = [0], Cursor()
    while not plan.complete(cursor, epochs):
        cursor = plan.rolled(cursor)
        extent = plan.extent_at(cursor)
        weights.append(fold(weights[-1], extent, ((extent.start, extent.stop),)))
        cursor = extent.after
    return weights


class Witness:
    def __init__(self, now: Callable[[], float], expected: list[int]) -> None:
        self._now = now
        self._expected = expected
        self.story: list[tuple[float, str]] = []
        self.findings: list[str] = []
        self._worlds: dict[int, World] = {}
        self._generation = 0  # the highest that was saved
        self._begun_in: dict[int, int] = {}  # the first step that was completed there
        self.decided_next: asyncio.Event | None = None  # somebody waits for the next decision
        self.switching_next: asyncio.Event | None = None  # or for the next switch step
        self.differing: set[int] = set()  # generations in which a script made its member differ
        self.printed: set[str] = set()  # lines that were shown
        self.scripts_differ = False  # any of them, ever
        self.unfit = 0  # newcomers whose scripts ended because they ask for other data
        self.notice_in_vain = False  # a member had to go, and nobody could take the state over
        self.steps = 0  # completed, by the furthest
        self.moved_at = now()  # when that last changed
        self.sizes: list[tuple[float, int]] = []  # of the worlds, since when
        self.step_seconds = 0.0
        self.is_well: Callable[[str], bool] = lambda member: False
        self.numbers_count = True  # else a world may be announced to nobody before it is saved
        self.also: Callable[[State, State], None] = lambda before, after: None  # looks on

    @property
    def size(self) -> int:
        """Of the world that is valid now; 0 before the first."""
        return self.sizes[-1][1] if self.sizes else 0

    def say(self, text: str) -> None:
        self.story.append((self._now(), text))

    def find(self, text: str) -> None:
        if text not in self.findings and len(self.findings) < MOST_FINDINGS:
            self.findings.append(text)
            self.say(f"FINDING: {text}")

    # --- members ----------------------------------------------------------------------------

    def announced(self, world: World) -> None:
        known = self._worlds.setdefault(world.generation, world)
        if known != world:
            self.find(f"two worlds of generation {world.generation}: {known.names}, {world.names}")

    def completed(self, member: str, generation: int, step: int, weights: int) -> None:
        """`step` steps are complete on this member."""
        first = self._begun_in.setdefault(generation, step)
        if step >= len(self._expected) or weights != self._expected[step]:
            self.find(f"{member} does not have every sample once after {step} steps")
        newer = [g for g in self._begun_in if g > generation]
        if newer and step > first + 1 and step > min(self._begun_in[g] for g in newer):
            self.find(f"{member} trains on in generation {generation} beside {max(newer)}")
        self.trained(step)

    def trained(self, step: int) -> None:
        if step > self.steps:
            self.steps, self.moved_at = step, self._now()

    def equal(self, member: str, states: Sequence[object]) -> None:
        """The members of a step: how far they are, with which weights, backend and plan."""
        if len(set(states)) > 1:
            differing = " and ".join(sorted(map(str, set(states))))
            self.find(f"the members of one step with {member} differ: {differing}")

    def received(self, member: str, differed: str) -> None:
        """A member takes the job's state over; it is told in what it differs, if it is as far."""
        if differed and not self.scripts_differ:
            self.find(f"{member} is said to differ, and no script did: {differed}")

    def same_values(self, generation: int, values: Sequence[object]) -> None:
        """What the members of a step hold besides the weights: equal since they met here."""
        if len(set(values)) > 1 and generation not in self.differing:
            self.find(f"the members of generation {generation} have different values of job.state")

    # --- the coordinator ----------------------------------------------------------------------

    def decided(self, before: State, after: State) -> None:
        if after.generation < before.generation:
            self.find(f"the generation goes back from {before.generation} to {after.generation}")
        changed = before.phase is not after.phase or before.generation != after.generation
        if changed and self.decided_next is not None:
            self.decided_next.set()
        if changed and after.phase is Phase.SWITCHING and self.switching_next is not None:
            self.switching_next.set()
        if changed and after.phase is Phase.SWITCHING and after.change is not None:
            self._published(after.change)
        if after.world != before.world and after.world is not None:
            self._new_world(after.world)
        self.also(before, after)
        if after.phase in OVER or before.phase in OVER:
            return
        for name in before.members.keys() - after.members.keys():
            gone = before.members[name]
            let_go = gone.stage is Stage.LEAVING or gone.finished or gone.error
            if gone.can_give and not let_go and self.is_well(name):
                self.find(f"{name} holds the state, runs and can be reached, and is given up")

    def _published(self, change: Change) -> None:
        """A planned change does not wait for all that was prefetched: it is bound by time."""
        seconds = (change.step - self.steps) * self.step_seconds
        if seconds > LATEST_SWITCH + STEPS_AHEAD * self.step_seconds:
            self.find(f"a change is to come in {seconds:.0f} s, at step {change.step}")

    def _new_world(self, world: World) -> None:
        self.say(f"world {world.generation}: {' '.join(world.names)}")
        self.sizes.append((self._now(), world.size))
        if world.generation < self._generation and self.numbers_count:
            self.find(f"world {world.generation} comes after {self._generation}")
        self._generation = world.generation
