"""Nodes are cordoned, drained, lost and returned."""

from midflight.controller import commands as do
from midflight.controller import events
from midflight.controller.state import NodeStage, Phase, Progress, Stage
from tests.controller.scenario import Scenario, node


def nodes_of(s: Scenario, job: str = "job") -> dict[str, str]:
    return {i.name[len(job) + 1 :]: i.node for i in s.job(job).instances.values()}


def test_a_cordoned_node_keeps_what_it_has_and_takes_nothing_new() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=2)
    before = nodes_of(s)
    s.node("cordon", "node-1")
    assert nodes_of(s) == before
    s.etjob("late", workers=2)
    assert set(nodes_of(s, "late").values()) == {"node-2"}


def test_a_drained_node_gives_its_workers_notice_and_they_move_under_their_names() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=2)
    moved = [name for name, where in nodes_of(s).items() if where == "node-1"]
    s.node("drain", "node-1")
    assert set(nodes_of(s).values()) == {"node-2"}
    assert set(s.stages().values()) == {"Running"}
    assert s.job().phase is Phase.RUNNING
    graces = {c.instance: c.grace for c in s.given(do.StopInstance)}
    assert graces == {f"job-{name}": 0.0 if name == "launcher" else 30.0 for name in moved}


def test_a_worker_that_the_job_cannot_do_without_is_replaced_before_it_has_gone() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=2, min_workers=2)
    leaver = next(n for n, where in nodes_of(s).items() if where == "node-1" and n != "launcher")
    s.deaf = {f"job-{leaver}"}
    s.node("drain", "node-1")
    assert s.stages()[leaver] == "Terminating"
    assert s.stages()["worker-2"] == "Running"
    assert nodes_of(s)["worker-2"] == "node-2"
    s.deaf.clear()
    s.end(leaver, 0)
    assert leaver not in nodes_of(s)
    assert set(nodes_of(s).values()) == {"node-2"}
    assert s.job().wanted == 2
    assert s.job().phase is Phase.RUNNING


def test_a_node_that_is_drained_twice_costs_one_replacement() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=2, min_workers=2)
    s.deaf = set(s.job().instances)
    for _ in range(2):
        s.node("drain", "node-1")
    assert len([n for n in nodes_of(s) if n.startswith("worker")]) == 3


def test_a_worker_that_an_operation_waits_for_moves_under_its_name() -> None:
    s = Scenario(node("node-1", gpus=3), node("node-2", gpus=3))
    s.node("cordon", "node-2")
    s.etjob(workers=2, min_workers=2)
    s.training_answers = False
    s.scale("scaleout", 1)
    s.node("return", "node-2")
    s.node("drain", "node-1")
    assert s.operation().workers == ("job-worker-2",)
    assert nodes_of(s)["worker-2"] == "node-2"
    s.training_answers = True
    s.answer(True)
    assert s.job().operations[-1].progress is Progress.SUCCEEDED
    workers = [name for name in nodes_of(s) if name.startswith("worker")]
    assert len(workers) == s.job().wanted == 3


def test_a_move_is_no_failure() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=2, worker_restart_policy="Never")
    s.node("drain", "node-1")
    assert set(s.stages().values()) == {"Running"}
    assert {i.failures for i in s.job().instances.values()} == {0}


def test_workers_of_a_drained_node_wait_when_there_is_no_room_elsewhere() -> None:
    s = Scenario(node("node-1", gpus=2), node("node-2", gpus=1))
    s.etjob(workers=3)
    s.node("drain", "node-1")
    assert list(s.stages().values()).count("Pending") == 2
    assert s.job().phase is Phase.RUNNING
    assert "of 3 workers run" in s.job().reason
    s.node("return", "node-1")
    assert set(s.stages().values()) == {"Running"}
    assert s.job().reason == ""


def test_a_fixed_pytorchjob_moves_as_a_whole_and_it_is_no_failure() -> None:
    s = Scenario(node("node-1"), node("node-2"), node("node-3"))
    s.pytorchjob(workers=3)
    s.node("drain", "node-1")
    assert "node-1" not in nodes_of(s).values()
    assert {i.attempt for i in s.job().instances.values()} == {2}
    assert s.job().restarts == 0
    assert s.job().phase is Phase.RUNNING


def test_what_was_on_a_lost_node_is_replaced_elsewhere_at_once() -> None:
    s = Scenario(node("node-1"), node("node-2"), held=True)
    s.etjob(workers=2)
    s.deliver_all()
    lost = [name for name, where in nodes_of(s).items() if where == "node-1"]
    s.node("lose", "node-1")
    for name in lost:  # before anything is heard of the old process
        assert s.instance(name).stage is Stage.STARTING
        assert s.instance(name).node == "node-2"
    assert {c.grace for c in s.given(do.StopInstance)} == {0.0}
    assert s.said("NodeLost").count("lost with node node-1") == len(lost)
    s.deliver_all()
    assert set(s.stages().values()) == {"Running"}


def test_a_worker_that_must_not_be_replaced_is_listed_as_lost() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=2, worker_restart_policy="Never")
    victim = next(n for n, where in nodes_of(s).items() if n != "launcher")
    where = nodes_of(s)[victim]
    s.node("lose", where)
    assert s.instance(victim).stage is Stage.ERROR
    assert s.instance(victim).reason == f"lost with node {where}"


def test_a_fixed_pytorchjob_starts_anew_when_a_node_is_lost() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.pytorchjob(workers=4)
    s.node("lose", "node-2")
    assert set(nodes_of(s).values()) == {"node-1"}
    assert s.job().phase is Phase.RUNNING
    assert s.job().restarts == 0


def test_losing_the_only_node_leaves_the_job_waiting_for_its_return() -> None:
    s = Scenario(node("node-1"))
    s.etjob(workers=2)
    s.node("lose", "node-1")
    assert set(s.stages().values()) == {"Pending"}
    assert "no node is ready" in s.job().reason
    s.node("return", "node-1")
    assert set(s.stages().values()) == {"Running"}


def test_a_node_that_is_no_longer_there_is_lost() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=4)
    s.tell(events.NodesChanged(s.now, (node("node-2"),)))
    assert set(nodes_of(s).values()) == {"node-2"}


def test_what_is_known_of_nodes_that_stay_is_kept() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.node("cordon", "node-1")
    s.node("lose", "node-2")
    s.tell(events.NodesChanged(s.now, (node("node-1", gpus=8), node("node-2"), node("node-3"))))
    stages = {name: n.stage for name, n in s.cluster.nodes.items()}
    assert stages == {
        "node-1": NodeStage.CORDONED,
        "node-2": NodeStage.LOST,
        "node-3": NodeStage.READY,
    }
    assert s.cluster.nodes["node-1"].gpus == 8


def test_a_worker_that_is_being_drained_when_its_node_is_lost_moves_at_once() -> None:
    s = Scenario(node("node-1"), node("node-2"))
    s.etjob(workers=2)
    s.deaf = {"job-worker-0", "job-worker-1"}
    s.node("drain", "node-1")
    assert "Terminating" in s.stages().values()
    s.deaf.clear()
    s.node("lose", "node-1")
    assert set(s.stages().values()) == {"Running"}


def test_a_chief_that_ends_well_while_it_is_moved_has_finished_the_job() -> None:
    s = Scenario(held=True)
    s.etjob(workers=1)
    s.deliver_all()
    s.node("drain", s.instance("launcher").node)
    s.end("launcher", 0)
    assert s.job().phase is Phase.SUCCEEDED


def test_an_unknown_node_is_no_trouble() -> None:
    s = Scenario()
    for action in ("cordon", "drain", "lose", "return"):
        s.node(action, "nowhere")
    assert len(s.cluster.nodes) == 3
