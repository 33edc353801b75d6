"""A run in numbers that only grow: what its record adds up to so far, piece by piece.

Whoever follows a record adds the new lines and need not keep the old ones. A record that begins
anew (`Begun`) is another run, whose numbers start from nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from midflight.flight.records import Begun, Formed, Lost, Over, Paused, Progress, Record

CAUSES = (
    *("start", "failure", "restart"),
    *("request", "replace", "growth", "shrink", "notice", "finish"),
)
OTHER = "other"  # a cause of a later release, or one that was not seen
MOST_WORLDS = 32  # whose causes are remembered: members tell of a pause soon after it


@dataclass(frozen=True)
class Totals:
    step: int = 0
    samples: int = 0  # 0: the script does not say
    members: int = 0  # of the world that is valid now
    losses: int = 0
    changes: Mapping[str, int] = field(default_factory=dict)  # by cause, the start too
    # By cause and phase: how many members told of it, and seconds in all.
    pauses: Mapping[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    causes: Mapping[int, str] = field(default_factory=dict)  # of the last worlds, by generation

    def after(self, records: Iterable[Record]) -> "Totals":
        totals = self
        for record in records:
            totals = totals._with(record)
        return totals

    def _with(self, record: Record) -> "Totals":
        match record:
            case Begun():
                return Totals()
            case Lost():
                return replace(self, losses=self.losses + 1)
            case Formed():
                return self._formed(record)
            case Paused():
                return self._paused(record)
            case Progress(_, step, samples):
                return replace(self, step=max(self.step, step), samples=max(self.samples, samples))
            case Over():
                return replace(self, members=0)
            case _:
                return self

    def _formed(self, record: Formed) -> "Totals":
        cause = record.cause if record.cause in CAUSES else OTHER
        causes = {**self.causes, record.generation: cause}
        for generation in list(causes)[:-MOST_WORLDS]:
            del causes[generation]
        changes = {**self.changes, cause: self.changes.get(cause, 0) + 1}
        return replace(self, members=len(record.members), changes=changes, causes=causes)

    def _paused(self, record: Paused) -> "Totals":
        cause = self.causes.get(record.generation, OTHER)
        pauses = dict(self.pauses)
        for phase, seconds in record.pause.phases.items():
            count, total = pauses.get((cause, phase), (0, 0.0))
            pauses[cause, phase] = (count + 1, total + seconds)
        return replace(self, pauses=pauses)
