"""When a lease is over, without a clock that two machines would have to share.

Its owner counts renewals. Whoever looks measures by its own clock for how long the count has stood
still under its eyes: a whole time to live of that ends the lease. So clocks that differ never end
one too early; but nobody has to be looking, and then it ends late: a time to live after somebody
began to look. While the API server was away nobody could renew, so that time does not count.
"""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from midflight.store.kubernetes_document import Term


@dataclass(frozen=True)
class _Sighting:
    renewals: int
    since: float  # when this count was seen first


class Sightings:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, _Sighting] = {}

    def overdue(self, leases: Mapping[int, Term], now: float) -> list[int]:
        """Those that have not been renewed for too long, as these are at `now`."""
        with self._lock:
            self._seen = {
                lease: self._sighting(lease, term.renewals, now) for lease, term in leases.items()
            }
            seen = self._seen
        return [lease for lease, term in leases.items() if now - seen[lease].since >= term.ttl]

    def next_end(self, leases: Mapping[int, Term]) -> float:
        """When the first of them will be overdue if it is not renewed."""
        with self._lock:
            seen = self._seen
        ends = (seen[lease].since + term.ttl for lease, term in leases.items() if lease in seen)
        return min(ends, default=math.inf)

    def begin_anew(self) -> None:
        with self._lock:
            self._seen = {}

    def _sighting(self, lease: int, renewals: int, now: float) -> _Sighting:
        known = self._seen.get(lease)
        return known if known and known.renewals == renewals else _Sighting(renewals, now)
