"""An informer follows what the API server has, and an index finds it by job."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from midflight.errors import Unreachable
from midflight.kubernetes.operator.informer import Informer, JobIndex, Key

Json = dict[str, Any]


def pod(name: str, version: int, job: str = "demo") -> Json:
    meta = {"namespace": "default", "name": name, "resourceVersion": str(version)}
    return {"metadata": meta, "job": job}


class ApiServer:
    """Lists what is in `objects`, then hands out one of `watches` each time."""

    def __init__(self, objects: list[Json], *watches: list[tuple[str, Json]]) -> None:
        self.objects = objects
        self.watches = list(watches)
        self.lists = 0
        self.idle = asyncio.Event()  # every change has been handed out

    async def list(self, *asked: Any) -> tuple[list[Any], str]:
        self.lists += 1
        *_, keep = asked
        return [keep(obj) for obj in self.objects], "1"

    async def watch(self, *_: Any) -> AsyncIterator[tuple[str, Json]]:
        for each in self.watches.pop(0):
            yield each
        if self.watches:
            raise Unreachable("the API server was restarted")
        self.idle.set()
        await asyncio.Event().wait()


def follow(server: ApiServer, *answers: Json) -> tuple[Informer[Json], JobIndex[Json], list[Key]]:
    """Until nothing happens any more; `answers` are put in the end, as of writes."""
    woken: list[Key] = []

    async def run() -> tuple[Informer[Json], JobIndex[Json]]:
        server.idle = asyncio.Event()
        index: JobIndex[Json] = JobIndex(lambda obj: str(obj["job"]), woken.append)
        made: Any = server
        informer = Informer(made, "Pod", "*", lambda obj: obj, index.update)
        task = asyncio.create_task(informer.run())
        await asyncio.wait_for(server.idle.wait(), 10)
        for each in answers:
            informer.put(each)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return informer, index

    return *asyncio.run(run()), woken


def names(index: JobIndex[Json], job: str = "demo") -> list[str]:
    return sorted(index.of(("default", job)))


def test_what_is_listed_and_what_changes_is_found_by_its_job() -> None:
    changes = [("ADDED", pod("b", 2)), ("DELETED", pod("a", 3)), ("BOOKMARK", pod("c", 4))]
    _, index, woken = follow(ApiServer([pod("a", 1), pod("x", 1, "other")], changes))
    assert (names(index), names(index, "other")) == (["b"], ["x"])
    assert woken.count(("default", "demo")) == 3
    assert woken.count(("default", "other")) == 1


def test_after_a_broken_watch_all_is_listed_again_and_what_went_meanwhile_is_gone() -> None:
    server = ApiServer([pod("a", 1)], [("ADDED", pod("b", 2))], [])
    _, index, _ = follow(server)
    assert server.lists == 2
    assert names(index) == ["a"]


def test_an_object_that_changes_its_job_is_found_by_the_new_one_alone() -> None:
    _, index, woken = follow(ApiServer([pod("a", 1)], [("MODIFIED", pod("a", 2, "other"))]))
    assert (names(index), names(index, "other")) == ([], ["a"])
    assert index.jobs() == [("default", "other")]
    assert woken[-2:] == [("default", "demo"), ("default", "other")]


def test_the_answer_to_a_write_does_not_bring_back_what_has_been_deleted() -> None:
    """Without its last finalizer an object is gone before the answer to that patch is here."""
    changes = [("MODIFIED", pod("a", 5)), ("DELETED", pod("a", 7))]
    informer, _, _ = follow(ApiServer([pod("a", 1)], changes), pod("a", 6), pod("a", 7))
    assert informer.items == {}


def test_the_answer_to_a_write_counts_at_once_unless_the_watch_knows_a_later_state() -> None:
    changes = [("MODIFIED", pod("a", 5))]
    informer, _, _ = follow(ApiServer([pod("a", 1)], changes), pod("a", 4), pod("b", 6))
    kept = {name: obj["metadata"]["resourceVersion"] for (_, name), obj in informer.items.items()}
    assert kept == {"a": "5", "b": "6"}
