"""Simulated nodes: who goes where, and what becomes of it when a node is closed or goes away."""

import contextlib
import re
from pathlib import Path

import pytest

from midflight.errors import Unreachable
from tests.cluster.home import SPACE, Home
from tests.guides.scripts import SYNTHETIC
from tests.run.site import eventually

pytestmark = pytest.mark.slow


def nodes_of(home: Home, name: str) -> dict[str, str]:
    return {i["name"]: i["node"] for i in home.seen(name)["instances"]}


def worker_on(home: Home, name: str, node: str) -> str:
    """One of its workers that is there."""
    return next(w for w, where in nodes_of(home, name).items() if "worker" in w and where == node)


def test_a_selector_a_closed_node_and_the_reason_for_waiting(home: Home) -> None:
    home.types("midflight up --nodes 2 --gpus-per-node 1")
    here = {"kubernetes.io/hostname": "node-2"}
    home.client.submit(home.sleeper("chosen", workers=1, gpus=1, selectors=here))
    home.await_up("chosen", 1)
    assert nodes_of(home, "chosen") == {"chosen-master-0": "node-2"}

    home.client.submit(home.sleeper("nowhere", workers=1, selectors={"gpu": "a100"}))
    assert "no node has the label gpu=a100" in home.types("midflight get nowhere").out

    home.types("midflight node cordon node-1")
    home.client.submit(home.sleeper("waits", workers=1, gpus=1))
    shown = home.types("midflight get waits").out
    assert re.search(r"^Status: +PENDING$", shown, re.M)
    assert "0/2 nodes have 1 free GPU" in shown
    assert home.is_up("chosen", 1)  # what was there before stays
    home.types("midflight node return node-1")
    home.await_up("waits", 1)
    assert nodes_of(home, "waits") == {"waits-master-0": "node-1"}

    home.client.submit(home.sleeper("large", workers=1, gpus=3))
    assert "no node has 3 GPUs; the largest has 1" in home.types("midflight get large").out


def test_what_was_on_a_lost_node_is_killed_and_comes_back(home: Home) -> None:
    home.types("midflight up --nodes 2 --gpus-per-node 1")
    home.client.submit(home.elastic("e", workers=2, gpus=1))
    home.await_up("e", 2)
    before, lost = home.keepers("e"), worker_on(home, "e", "node-2")
    stays = worker_on(home, "e", "node-1")
    home.types("midflight node lose node-2")
    eventually(lambda: lost not in home.keepers("e"), but=lambda: str(home.keepers("e")))
    eventually(lambda: home.statuses("e")[lost] == "Pending")
    shown = home.types("midflight get e").out
    assert re.search(r"^Status: +RUNNING$", shown, re.M)
    assert re.search(rf"1 of 2 workers run; {lost} waits: 0/2 nodes have 1 free GPU", shown)
    assert "NotReady" in home.types("midflight node list").out

    home.types("midflight node return node-2")
    home.await_up("e", 2)
    home.runs_what_it_says("e")
    assert worker_on(home, "e", "node-2") == lost
    assert home.keepers("e")[stays] == before[stays]


@pytest.mark.parametrize("point", ["after-save", "after-command"])
@pytest.mark.parametrize(("action", "event"), [("lose", "NodeLost"), ("drain", "NodeDrained")])
def test_a_server_that_is_killed_over_a_node_finishes_the_move(
    home: Home, action: str, event: str, point: str
) -> None:
    client = home.serve(f"{point}:1:{event}")
    client.simulate_nodes(2, 2)
    client.submit(home.elastic("e", workers=2, gpus=1))
    home.await_up("e", 2)
    with contextlib.suppress(Unreachable):
        client.node_action("node-2", action)
    home.server_is_gone()
    home.serve()
    eventually(lambda: set(nodes_of(home, "e").values()) == {"node-1"})
    home.await_up("e", 2)
    home.runs_what_it_says("e")


def test_a_job_of_fixed_size_starts_anew_when_it_loses_a_node(home: Home) -> None:
    home.types("midflight up --nodes 3 --gpus-per-node 1")
    home.client.submit(home.sleeper("s", gpus=1))
    home.await_up("s", 2)
    before = set(home.keepers("s").values())
    home.types(f"midflight node lose {nodes_of(home, 's')['s-worker-0']}")
    eventually(lambda: home.is_up("s", 2) and not before & set(home.processes()))
    home.runs_what_it_says("s")


def test_a_drained_node_hands_its_training_on(home: Home, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SYNTHETIC)
    home.types("midflight up --nodes 3 --gpus-per-node 1")
    sizes = "--workers 2 --min-workers 1 --max-workers 3 --gpus 1"
    home.types(f"midflight submit etjob --name t {sizes} 'python train.py'")
    home.until("midflight logs t --tail 1", lambda out: "Iter #" in out)
    launcher = nodes_of(home, "t")["t-launcher"]
    drained = next(n for w, n in nodes_of(home, "t").items() if "worker" in w and n != launcher)
    moved = worker_on(home, "t", drained)
    before = home.pids("t")

    home.types(f"midflight node drain {drained}")
    eventually(lambda: nodes_of(home, "t")[moved] not in (drained, "N/A"), within=30)
    assert home.seen("t")["status"] == "RUNNING"
    home.until("midflight status t", lambda out: "2 of 2 wanted" in out)
    home.await_up("t", 2)
    home.runs_what_it_says("t")
    after = home.pids("t")
    assert {name for name in before if before[name] != after[name]} == {moved}

    # A node that is lost gives no notice; the others go on, and it comes back with the node.
    lost = nodes_of(home, "t")[moved]
    home.client.node_action(lost, "lose")
    home.until("midflight status t", lambda out: "1 of 2 wanted" in out)
    home.client.node_action(lost, "return")
    home.until("midflight status t", lambda out: "2 of 2 wanted" in out)
    assert home.seen("t")["status"] == "RUNNING"
    assert "every sample was used exactly once" in home.types("midflight audit t").out
    assert home.client.job(SPACE, "t")["operations"] == []


def test_a_drained_worker_that_cannot_be_missed_is_replaced_first(home: Home) -> None:
    (home.folder / "train.py").write_text(SYNTHETIC)
    home.types("midflight up --nodes 3 --gpus-per-node 1")
    sizes = "--workers 2 --min-workers 2 --max-workers 2 --gpus 1"
    home.types(f"midflight submit etjob --name t {sizes} 'python train.py'")
    home.until("midflight logs t --tail 1", lambda out: "Iter #" in out)
    before = home.pids("t")
    home.types(f"midflight node drain {nodes_of(home, 't')['t-worker-1']}")
    home.until("midflight logs t", lambda out: "resized from 2 to 2 members" in out)
    home.await_up("t", 2)
    home.runs_what_it_says("t")
    after = home.pids("t")
    assert set(after) == {"t-launcher", "t-worker-0", "t-worker-2"}
    assert after["t-worker-0"] == before["t-worker-0"]
    assert "every sample was used exactly once" in home.types("midflight audit t").out
