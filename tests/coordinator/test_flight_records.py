"""What is written down of a run: who came and went, which worlds there were, and why."""

from dataclasses import replace
from typing import Any

from midflight.coordinator.core import events
from midflight.coordinator.core.state import Ended as MemberEnded
from midflight.coordinator.flight_records import records
from midflight.flight.records import (
    Asked,
    Ended,
    Formed,
    Joined,
    Lost,
    Over,
    Place,
    Record,
    Settled,
    as_line,
    parse,
)
from tests.coordinator.scenario import FakeCluster


class Recorded(FakeCluster):
    """Writes down what the coordinator would."""

    def __init__(self, hosts: dict[str, int], **spec: Any) -> None:
        self.records: list[Record] = []
        super().__init__(hosts, **spec)

    def handle(self, event: events.Event) -> None:
        before = self.state
        super().handle(event)
        self.records += records(before, self.state, event, event.now - 100.0)

    def of(self, kind: type[Record]) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]


def started(**spec: Any) -> Recorded:
    cluster = Recorded({"h0": 1, "h1": 1, "h2": 1}, np=2, **spec)
    cluster.run(2.0)
    assert cluster.world == ("m0", "m1")
    return cluster


def test_the_first_world_and_those_who_joined_it_are_written_down() -> None:
    cluster = started()
    assert [(each.member, each.host) for each in cluster.of(Joined)] == [("m0", "h0"), ("m1", "h1")]
    (world,) = cluster.of(Formed)
    assert (world.generation, world.cause) == (1, "start")
    assert world.members == (Place("m0", "h0"), Place("m1", "h1"))


def test_a_resize_is_written_down_from_the_request_to_its_outcome() -> None:
    cluster = started()
    cluster.ask(to=3, id="r1")
    cluster.run(3.0)
    (asked,), (settled,) = cluster.of(Asked), cluster.of(Settled)
    assert (asked.id, asked.wish) == ("r1", "3 members")
    assert (settled.id, settled.ok) == ("r1", True)
    _, world = cluster.of(Formed)
    assert (world.cause, len(world.members)) == ("request", 3)
    assert asked.t <= world.t < settled.t  # it is answered after a step
    assert world.step > 0


def test_a_request_that_is_refused_is_written_down_with_the_reason() -> None:
    cluster = started()
    cluster.ask(add=99, id="r2")
    (settled,) = cluster.of(Settled)
    assert (settled.ok, cluster.of(Asked)[0].wish) == (False, "99 more")
    assert "would be more than --max-np" in settled.detail


def test_a_loss_is_written_down_with_its_reason_and_then_the_next_world() -> None:
    cluster = started()
    cluster.kill("m1")
    cluster.run(0.3)
    (lost,) = cluster.of(Lost)
    assert (lost.member, lost.host, lost.reason) == ("m1", "h1", "m1: killed by SIGKILL")
    failure = cluster.of(Formed)[1]
    assert (failure.cause, failure.members) == ("failure", (Place("m0", "h0"),))


def test_how_a_member_ended_is_added_once_its_agent_tells() -> None:
    cluster = started()
    waiting = replace(cluster.state, vanished={"m1": MemberEnded("here", 1, -9)})
    exited = events.Exited(cluster.now, "m1", -9, "")
    told = records(waiting, cluster.state, exited, 1.0)
    assert told == [Ended(1.0, "m1", "killed by SIGKILL")]


def test_members_that_are_let_go_are_not_lost() -> None:
    cluster = started()
    cluster.ask(to=1, id="r3")
    cluster.run(3.0)
    assert cluster.of(Lost) == []
    assert len(cluster.of(Formed)[-1].members) == 1


def test_a_preemption_is_the_cause_of_its_world() -> None:
    cluster = started(min_np=1)
    cluster.client(events.HostNoticed, "h1", 30.0)
    cluster.run(1.0)
    assert [each.cause for each in cluster.of(Formed)][1] == "notice"


def test_the_end_is_written_down_once_with_the_last_step() -> None:
    cluster = started()
    cluster.last_step = cluster.state.best_step + 5
    cluster.run(4.0)
    (over,) = cluster.of(Over)
    assert (over.phase, over.step) == ("succeeded", cluster.state.best_step)


def test_a_script_that_is_restarted_has_worlds_as_well() -> None:
    cluster = Recorded({"h0": 2}, np=2, start_timeout=1.0)
    cluster.uses_midflight = False
    cluster.run(3.0)
    cluster.ask(to=1, id="r4")
    cluster.run(3.0)
    assert [(each.cause, len(each.members)) for each in cluster.of(Formed)] == [
        ("start", 2),
        ("restart", 1),
    ]


def test_every_record_can_be_read_again() -> None:
    cluster = started()
    cluster.ask(to=3, id="r5")
    cluster.run(2.0)
    cluster.kill("m0")
    cluster.run(2.0)
    assert parse(as_line(record) for record in cluster.records) == [
        parse([as_line(record)])[0] for record in cluster.records
    ]
