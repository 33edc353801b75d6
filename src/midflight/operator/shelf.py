"""A shelf: what a mirror holds, found by the job it belongs to."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from midflight.operator.mirror import Key

T = TypeVar("T")


class Shelf(Generic[T]):
    def __init__(self, job_of: Callable[[T], str], wake: Callable[[Key], None]) -> None:
        self._job_of = job_of
        self._wake = wake
        self._found: dict[Key, dict[str, T]] = defaultdict(dict)
        self._places: dict[Key, Key] = {}  # of each thing, the job under which it stands

    def of(self, job: Key) -> Mapping[str, T]:
        """By name."""
        return self._found.get(job, {})

    def jobs(self) -> list[Key]:
        """Of all that is here."""
        return list(self._found)

    def note(self, key: Key, item: T | None, there: bool) -> None:
        """A change; `there`: it exists, and this is it."""
        namespace, name = key
        former = self._places.pop(key, None)
        if former is not None:
            self._found[former].pop(name, None)
            if not self._found[former]:
                del self._found[former]
            self._wake(former)
        if there and item is not None:
            job = (namespace, self._job_of(item))
            self._found[job][name] = item
            self._places[key] = job
            if job != former:
                self._wake(job)
