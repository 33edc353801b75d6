"""Which node, which devices, and why not."""

import pytest

from midflight.controller import commands as do
from midflight.controller import events
from midflight.controller.state import Phase, Stage
from tests.controller.scenario import Scenario, node


def test_a_job_that_does_not_fit_is_pending_with_the_reason() -> None:
    s = Scenario(node("node-1", gpus=2), node("node-2", gpus=2))
    s.etjob("first", workers=2, gpus=2)
    s.etjob("job", workers=1, gpus=2)
    assert s.job().phase is Phase.PENDING
    assert s.job().reason == "0/2 nodes have 2 free GPUs"
    assert s.instance("worker-0").reason == "0/2 nodes have 2 free GPUs"
    assert set(s.stages().values()) == {"Pending"}


def test_a_node_without_the_label_is_no_place() -> None:
    s = Scenario(node("node-1"), node("node-2", gpu="v100"))
    s.etjob(selectors={"gpu": "a100"})
    assert s.job().reason == "no node has the label gpu=a100"
    s.tell(events.NodesChanged(s.now, (node("node-1"), node("node-2", gpu="a100"))))
    assert {s.instance(f"worker-{n}").node for n in range(3)} == {"node-2"}
    assert s.instance("launcher").node == "node-1"  # selectors are for workers


def test_more_gpus_than_any_node_has_is_said_so() -> None:
    s = Scenario()
    s.etjob(gpus=8)
    assert s.job().reason == "no node has 8 GPUs; the largest has 4"


def test_without_a_ready_node_nothing_is_placed() -> None:
    s = Scenario(node("node-1"))
    s.node("cordon", "node-1")
    s.etjob()
    assert s.job().reason == "no node is ready"
    s.node("return", "node-1")
    assert s.job().phase is Phase.RUNNING


def test_an_etjob_starts_with_the_least_number_and_grows_when_there_is_room() -> None:
    s = Scenario(node("node-1", gpus=4))
    s.etjob("first", workers=2)
    s.etjob("job", workers=4, min_workers=2)
    assert s.stages() == {
        "launcher": "Running",
        "worker-0": "Running",
        "worker-1": "Running",
        "worker-2": "Pending",
        "worker-3": "Pending",
    }
    assert s.job().phase is Phase.RUNNING
    s.end("launcher", 0, "first")
    assert set(s.stages().values()) == {"Running"}


def test_nothing_of_an_etjob_starts_before_the_least_number_fits() -> None:
    s = Scenario(node("node-1", gpus=4))
    s.etjob("first", workers=3)
    s.etjob("job", workers=3, min_workers=2)
    assert set(s.stages().values()) == {"Pending"}
    assert s.job().reason == "0/1 nodes have 1 free GPU for all; 1 of 2 workers would fit"


def test_a_fixed_pytorchjob_is_placed_all_or_nothing() -> None:
    s = Scenario(node("node-1", gpus=3))
    s.etjob("first", workers=1)
    s.pytorchjob("job", workers=3)
    assert set(s.stages().values()) == {"Pending"}
    s.end("launcher", 0, "first")
    assert set(s.stages().values()) == {"Running"}


def test_an_elastic_pytorchjob_starts_with_its_master_as_one_of_the_least() -> None:
    s = Scenario(node("node-1", gpus=2))
    s.pytorchjob(workers=3, min_workers=2, max_workers=4)
    assert s.stages() == {"master-0": "Running", "worker-0": "Running", "worker-1": "Pending"}
    assert s.job().phase is Phase.RUNNING


def test_the_oldest_job_that_waits_gets_the_room_first() -> None:
    s = Scenario(node("node-1", gpus=1))
    for number, name in enumerate(("a", "c", "b")):
        s.now += number
        s.etjob(name, workers=1)
    s.end("launcher", 0, "a")
    assert s.job("c").phase is Phase.RUNNING
    assert s.job("b").phase is Phase.PENDING


def test_workers_without_gpus_take_no_devices_and_spread_by_count() -> None:
    s = Scenario(node("node-1", gpus=0), node("node-2", gpus=0))
    s.etjob(gpus=0, workers=4)
    nodes = [i.node for i in s.job().instances.values()]
    assert sorted(nodes) == ["node-1"] * 3 + ["node-2"] * 2
    assert all(not i.devices for i in s.job().instances.values())


def test_the_lowest_free_devices_are_given_out_again() -> None:
    s = Scenario(node("node-1", gpus=4))
    s.etjob("a", workers=2)
    s.etjob("b", workers=2)
    s.end("launcher", 0, "a")
    s.etjob("c", workers=1)
    assert s.instance("worker-0", "c").devices == (0,)


def test_pending_is_recorded_only_when_the_reason_changes() -> None:
    s = Scenario(node("node-1", gpus=1))
    s.etjob(gpus=2, workers=1)
    for _ in range(3):
        s.tell(events.TimePassed(s.now))
        s.node("return", "node-1")
    assert len(s.said("Pending")) == 2  # the launcher's and the worker's
    s.node("cordon", "node-1")
    assert len(s.said("Pending")) == 4


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_node_that_shrinks_keeps_what_it_has(gpus: int) -> None:
    s = Scenario(node("node-1", gpus=2))
    s.etjob(workers=2)
    s.tell(events.NodesChanged(s.now, (node("node-1", gpus=gpus),)))
    assert s.instance("worker-1").stage is Stage.RUNNING
    assert not s.given(do.StopInstance)
