"""The loop: look, choose, strike, see that training goes on, rest; until the time is over.

It stops at the first strike after which training does not go on, so that what is broken can be
looked at as it is.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from midflight import async_timeout
from midflight.backoff import LOOK
from midflight.chaos.choice import CUT, OVER, RESIZE, SLOW, STOP, Member, Seen, Strike, choose, rest
from midflight.chaos.processes import is_member
from midflight.chaos.recovery import Recovery
from midflight.chaos.report import Outcome, Report
from midflight.chaos.sizes import Sizes
from midflight.chaos.strikes import Strikes
from midflight.coordinator.client import CoordinatorClient
from midflight.errors import JobFailed, StoreError, Unreachable
from midflight.protocol.messages import Status
from midflight.quantities import counted
from midflight.run.record import last_status
from midflight.rundir import RunDir


@dataclass(frozen=True)
class Plan:
    seed: int
    seconds: float
    actions: Sequence[str]
    rest: float  # seconds between two strikes, on average
    patience: float  # seconds within which training must continue after a strike
    reckless: bool = False


class Monkey:
    def __init__(
        self, folder: RunDir, client: CoordinatorClient, sizes: Sizes, strikes: Strikes, plan: Plan
    ) -> None:
        self._folder = folder
        self._client = client
        self._sizes = sizes
        self._strikes = strikes
        self._plan = plan
        self._resets = folder.read_spec().reset_limit
        self._status: Status
        self._pids: dict[str, int] = {}
        self._began = 0.0
        self.report = Report(plan.seed, (), {})  # so far

    async def run(self, tell: Callable[[str], None]) -> None:
        seen = await self._first_step()
        actions = self._possible(tell)
        loop = asyncio.get_running_loop()
        self._began, number = loop.time(), 0
        while loop.time() - self._began < self._plan.seconds and not self.report.broke:
            looked = await self._look()
            seen = looked or seen
            if seen.phase in OVER:
                break
            strike = await self._choose(number, seen, actions) if looked else None
            if strike is None:  # nothing is possible at the moment
                await asyncio.sleep(LOOK)
                continue
            outcome = await self._strike(strike, seen)
            tell("  ".join((*outcome.row, outcome.effect)))
            number += 1
            await asyncio.sleep(rest(self._plan.seed, number, self._plan.rest))

    async def _choose(self, number: int, seen: Seen, actions: Sequence[str]) -> Strike | None:
        plan = self._plan
        if RESIZE in actions:
            with contextlib.suppress(Unreachable):  # the server is away: another strike, then
                size, least, most = await self._sizes.bounds(self._status)
                seen = replace(seen, size=size, least=least, most=most)
        return choose(plan.seed, number, seen, actions, reckless=plan.reckless)

    def _possible(self, tell: Callable[[str], None]) -> list[str]:
        found = self._strikes.impossible(self._pids)
        impossible = {action: found[action] for action in self._plan.actions if action in found}
        self.report = replace(self.report, impossible=impossible)
        for action, reason in impossible.items():
            tell(f"{action} is not possible here: {reason}")
        left = [action for action in self._plan.actions if action not in impossible]
        if not left:
            raise JobFailed("none of the actions is possible here; see above")
        return left

    async def _first_step(self) -> Seen:
        """A training in which nothing moves cannot be seen to go on."""
        try:
            async with async_timeout.timeout(self._plan.patience):
                recovery = Recovery(Strike(""), 0.0)
                while not recovery.complete:
                    seen = await self._look()
                    if seen is not None and seen.phase in OVER:
                        raise JobFailed(f"it is over ({seen.phase}); there is nothing to strike")
                    now = asyncio.get_running_loop().time()
                    recovery = recovery.observe(now, seen, striking=False) if seen else recovery
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            raise JobFailed(
                f"no step completed within {self._plan.patience:g} s, so nobody could see whether "
                "training continues; a script that never calls Midflight reports no steps"
            ) from None
        assert seen is not None
        return seen

    async def _strike(self, strike: Strike, before: Seen) -> Outcome:
        now = asyncio.get_running_loop().time
        recovery = Recovery(strike, now())
        work = asyncio.create_task(self._strikes.carry_out(strike, dict(self._pids)))
        last = before
        try:
            while not (work.done() and (recovery.complete or recovery.failed)):
                if now() - recovery.began > strike.seconds + self._plan.patience:
                    break
                await asyncio.sleep(LOOK)
                striking = not work.done()
                seen = await self._look()
                if seen is not None:
                    last = seen
                    recovery = recovery.observe(now(), seen, striking=striking)
            words = await work if work.done() else "not over yet"
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        went_on = recovery.seconds if recovery.complete else None
        effect = f"{words}; {_change(strike, before, last)}"
        outcome = Outcome(recovery.began - self._began, strike, effect, went_on)
        self._note(outcome, last, failed=recovery.failed)
        return outcome

    def _note(self, outcome: Outcome, last: Seen, *, failed: bool) -> None:
        broke = ""
        if outcome.went_on is None:
            what = f"{outcome.strike.action} {outcome.target}"
            how = "the training has failed" if failed else f"no step was made ({last.phase})"
            broke = f"after strike {len(self.report.outcomes) + 1}, {what}: {how}"
        outcomes = (*self.report.outcomes, outcome)
        self.report = replace(self.report, outcomes=outcomes, broke=broke)

    async def _look(self) -> Seen | None:
        """None while nobody answers."""
        try:
            self._status = status = await self._client.status()
        except Unreachable:
            return self._saved_end()
        here = {m.name: m.pid for m in status.members if is_member(m.pid, self._folder)}
        self._pids = here
        return Seen(
            status.phase,
            status.step,
            tuple(Member(m.name, m.rank is not None, m.name in here) for m in status.members),
            resets_left=None if self._resets is None else self._resets - status.resets,
        )

    def _saved_end(self) -> Seen | None:
        try:
            last = last_status(self._folder)
        except StoreError:  # away for now, as the coordinator is
            return None
        return Seen(last.phase, last.step) if last is not None and last.phase in OVER else None


def _change(strike: Strike, before: Seen, after: Seen) -> str:
    parts = [f"{counted(after.step - before.step, 'step')}"]
    if after.phase not in OVER:
        names = {member.name for member in after.members if member.holds}
        if strike.action in (STOP, CUT, SLOW) and strike.target not in names:
            parts.append("it was given up")
        if before.holders != after.holders:
            parts.append(f"{before.holders} to {counted(after.holders, 'member')}")
    return ", ".join(parts)
