"""The server is killed: at each point of its loop, and while a training runs.

Whatever was accepted is there afterwards, nothing runs twice, every operation comes to its end, and
the instances that run are those that `get` shows. The jobs are as cheap as they can be, except
where it is the training that matters.
"""

import contextlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from midflight.backends.crash_points import POINTS, VARIABLE
from midflight.errors import Unreachable
from tests.cluster.home import SPACE, Home
from tests.guides.scripts import SYNTHETIC
from tests.run.site import eventually

pytestmark = pytest.mark.slow

WRITTEN = ("before-save", "after-save")
LEAVE_A_LINE = 'echo "$RANK" >> ran; exec sleep 1000'


def crashes(home: Home, ask: Callable[[], object]) -> None:
    """Ask for something that the server dies of, before it can answer or afterwards."""
    with contextlib.suppress(Unreachable):
        ask()
    home.server_is_gone()


def ran(home: Home) -> list[str]:
    path = home.folder / "ran"
    return sorted(path.read_text().split()) if path.exists() else []


@pytest.mark.parametrize(
    ("point", "event"),
    [*((p, "JobSubmitted") for p in POINTS), *((p, "InstanceStarted") for p in WRITTEN)],
)
def test_killed_during_a_submit(home: Home, point: str, event: str) -> None:
    client = home.serve(f"{point}:1:{event}")
    crashes(home, lambda: client.submit(home.sleeper("s", LEAVE_A_LINE)))
    home.serve()
    if (point, event) == ("before-save", "JobSubmitted"):
        assert home.job("s") is None
        assert ran(home) == []
        return
    home.await_up("s", 2)
    home.runs_what_it_says("s")
    eventually(lambda: ran(home) == ["0", "1"], but=lambda: str(ran(home)))


@pytest.mark.parametrize(
    ("point", "event"),
    [
        *((p, "ScaleAsked") for p in POINTS),
        *((p, "ResizeEnded") for p in WRITTEN),
    ],
)
def test_killed_during_changes_of_size(home: Home, point: str, event: str) -> None:
    """A scaleout, and then a scalein, each by a server that dies of it."""
    home.serve().submit(home.elastic("e"))
    home.await_up("e", 1)
    stays = home.pids("e")["e-worker-0"]
    accepted = (point, event) != ("before-save", "ScaleAsked")
    for number, size in enumerate((2, 1) if accepted else (2,), start=1):
        home.kill_server()
        client = home.serve(f"{point}:1:{event}")
        crashes(home, partial(client.scale, SPACE, "e", {"to": size, "timeout": 30}))
        home.serve()
        home.await_up("e", size if accepted else 1)
        home.runs_what_it_says("e")
        operations = home.seen("e")["operations"]
        assert [o["progress"] for o in operations] == ["succeeded"] * (number if accepted else 0)
    assert home.pids("e")["e-worker-0"] == stays


@pytest.mark.parametrize(
    ("point", "event"),
    [*((p, "JobDeleted") for p in POINTS), *((p, "InstanceEnded") for p in POINTS)],
)
def test_killed_during_a_delete(home: Home, point: str, event: str) -> None:
    """The only command that the end of an instance leads to is the one to remove the job."""
    client = home.serve(f"{point}:1:{event}")
    client.submit(home.sleeper("s"))
    home.await_up("s", 2)
    crashes(home, lambda: client.delete(SPACE, "s"))
    if (point, event) == ("before-command", "InstanceEnded"):
        assert home.job_folder("s").is_dir()  # and nobody knows of it any more
    home.serve()
    if (point, event) == ("before-save", "JobDeleted"):
        assert home.is_up("s", 2)
        home.runs_what_it_says("s")
        return
    eventually(lambda: home.job("s") is None, but=lambda: str(home.job("s")))
    eventually(lambda: not home.keepers("s"))
    eventually(lambda: not home.job_folder("s").exists(), but=lambda: "its folder is still there")


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_the_end_of_a_job(home: Home, point: str) -> None:
    """The master ends by itself, and the worker has to be stopped."""
    client = home.serve(f"{point}:1:InstanceEnded")
    by_rank = 'echo "$RANK" >> ran; if [ "$RANK" = 1 ]; then exec sleep 1000; fi'
    client.submit(home.sleeper("s", f"{by_rank}; until [ -e end ]; do sleep 0.05; done"))
    home.await_up("s", 2)
    (home.folder / "end").touch()
    home.server_is_gone()
    home.serve()
    eventually(lambda: home.seen("s")["status"] == "SUCCEEDED", but=lambda: str(home.job("s")))
    home.runs_what_it_says("s")
    ended = {"s-master-0": "Completed", "s-worker-0": "Completed"}
    eventually(lambda: home.statuses("s") == ended, but=lambda: str(home.statuses("s")))
    assert ran(home) == ["0", "1"]


def test_killed_again_and_again_while_it_comes_up(home: Home) -> None:
    home.serve().submit(home.elastic("e", workers=2))
    home.await_up("e", 2)
    keepers, pids = home.keepers("e"), home.pids("e")
    home.kill_server()
    for crash in (
        "before-save:1:ServerStarted",
        "after-save:1:ServerStarted",
        "before-command:1:ServerStarted",
    ):
        home.env[VARIABLE] = crash
        home.types("midflight list", code=None)  # it may have been answered before
        del home.env[VARIABLE]
        home.server_is_gone()
    home.serve()
    home.await_up("e", 2)
    assert (home.keepers("e"), home.pids("e")) == (keepers, pids)
    assert {i["restarts"] for i in home.seen("e")["instances"]} == {0}


def test_killed_while_a_worker_waits_for_room(home: Home) -> None:
    home.types("midflight up --nodes 1 --gpus-per-node 1")
    home.client.submit(home.elastic("e", gpus=1))
    home.await_up("e", 1)
    home.client.scale(SPACE, "e", {"to": 2, "timeout": 2})
    eventually(lambda: home.statuses("e").get("e-worker-1") == "Pending")
    home.kill_server()
    home.serve()
    home.await_up("e", 1)
    home.runs_what_it_says("e")
    (operation,) = home.seen("e")["operations"]
    assert operation["progress"] == "failed"
    assert "e-worker-1 is pending: 0/1 nodes have 1 free GPU" in operation["message"]


# --- a real training --------------------------------------------------------------------------


def iterations(home: Home, name: str) -> list[int]:
    """From the file itself: there may be no server to ask."""
    logs = home.job_folder(name) / "instances" / f"{name}-launcher"
    found = re.findall(r"Iter #(\d+):", (logs / "log").read_text())
    return [int(number) for number in found]


def await_iterations(home: Home, name: str, more: int) -> None:
    wanted = len(iterations(home, name)) + more
    eventually(lambda: len(iterations(home, name)) >= wanted, within=60)


def trainers(home: Home) -> set[int]:
    return {pid for pid, words in home.processes().items() if "-m midflight.server" not in words}


def test_a_training_goes_on_and_so_do_its_changes_of_size(home: Home, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SYNTHETIC)
    sizes = "--workers 2 --min-workers 1 --max-workers 3"
    home.types(f"midflight submit etjob --name t {sizes} 'python train.py'")
    eventually(lambda: (home.job_folder("t") / "instances" / "t-launcher" / "log").exists())
    await_iterations(home, "t", 2)

    # Killed while it trains: nobody notices, and whoever asks next starts the next server.
    before = trainers(home)
    home.kill_server()
    await_iterations(home, "t", 3)
    assert trainers(home) == before
    assert re.search(r"^t +RUNNING +ETJOB", home.types("midflight list").out, re.M)
    assert re.search(r"^Workers: +2 ", home.types("midflight get t").out, re.M)
    assert "Iter #" in home.types("midflight logs t --tail 5").out
    assert trainers(home) == before

    # Killed when the training has just been asked, and when it has just answered.
    for size, crash in ((3, "after-command:2:ScaleAsked"), (2, "before-save:1:ResizeEnded")):
        home.kill_server()
        client = home.serve(crash)
        home.await_up("t", 5 - size)
        crashes(home, partial(client.scale, SPACE, "t", {"to": size, "timeout": 60}))
        home.serve()
        home.await_up("t", size, within=60)
        home.runs_what_it_says("t")
        assert home.seen("t")["operations"][-1]["progress"] == "succeeded"
        assert f"{size} of {size} wanted" in home.types("midflight status t").out
    await_iterations(home, "t", 2)
    every = iterations(home, "t")
    assert every == list(range(1, len(every) + 1))
    assert "every sample was used exactly once" in home.types("midflight audit t").out
