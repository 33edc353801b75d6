"""Which measurements a call makes, and in which order."""

import pytest

from bench.plan import Settings, plan, sizes


def test_the_systems_of_a_steady_case_are_measured_together() -> None:
    settings = Settings(cases=["steady"], megabytes=[1], workers=[2], repeats=1)
    (item,) = plan(settings)
    assert item.systems == ("ddp", "midflight", "torchrun", "torchft")
    assert item.shape.gated


def test_systems_change_faster_than_repeats() -> None:
    settings = Settings(cases=["resize"], megabytes=[1], workers=[2], repeats=2)
    once = [("midflight",), ("torchrun",), ("torchft",)]
    assert [item.systems for item in plan(settings)] == once + once


def test_nobody_is_asked_for_what_it_cannot_do() -> None:
    settings = Settings(cases=["failure", "join"], systems=["ddp", "torchrun"], repeats=1)
    asked = {(item.systems, item.kind) for item in plan(settings)}
    assert asked == {(("torchrun",), kind) for kind in ("sigkill", "host", "cold join")}


def test_only_a_warm_join_and_a_resize_have_standbys() -> None:
    settings = Settings(cases=["resize", "failure", "join"], systems=["midflight"], repeats=1)
    warm = {item.kind for item in plan(settings) if item.shape.warm}
    assert warm == {"resize", "warm join", "command join"}


def test_a_case_has_its_own_sizes_unless_others_are_named() -> None:
    assert sizes("failure", Settings()) == [(1, 3), (1, 6), (100, 3)]
    assert sizes("failure", Settings(megabytes=[1])) == [(1, 3), (1, 6)]
    assert sizes("failure", Settings(workers=[4])) == [(1, 4), (100, 4)]
    assert sizes("failure", Settings(megabytes=[10])) == [(10, 3), (10, 6)]


@pytest.mark.parametrize("case", ["coordinator", "wire"])
def test_the_coordinator_and_the_wire_have_no_peers_and_no_sizes(case: str) -> None:
    settings = Settings(cases=[case], megabytes=[1, 100], workers=[2, 3], repeats=1)
    assert len(list(plan(settings))) == 1
