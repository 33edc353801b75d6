"""What is asked of the coordinator so that members become the workers of a list."""

from midflight.compat.kungfu.cluster import Address
from midflight.compat.kungfu.matching import PATIENCE, next_step
from midflight.protocol.messages import MemberStatus, ResizeRequested, Status

A, B = "127.0.0.1", "127.0.0.2"


def workers(host: str, *numbers: int) -> list[Address]:
    return [Address(host, 10000 + number) for number in numbers]


def job(*members: tuple[str, str], wanted: int | None = None) -> Status:
    """Members as (name, host), in the order of their ranks."""
    known = tuple(
        MemberStatus(name, rank, host, 100 + rank, 5, "active")
        for rank, (name, host) in enumerate(members)
    )
    size = len(members) if wanted is None else wanted
    return Status("job", "stable", "", 1, 5, size, 1, 1000, 0, known, ())


def test_nothing_is_asked_for_when_every_worker_has_its_member() -> None:
    step = next_step(workers(A, 0, 1), job(("m0", A), ("m1", A)), {})
    assert step.request is None
    assert step.hosts == {A: 0}
    assert step.matches == dict(zip(("m0", "m1"), workers(A, 0, 1), strict=True))


def test_newcomers_find_slots_only_where_they_belong() -> None:
    step = next_step([*workers(A, 0, 1), *workers(B, 0, 1)], job(("m0", A), ("m1", A)), {})
    assert step.request == ResizeRequested(None, 2, 0, (), PATIENCE)
    assert step.hosts == {A: 0, B: 2}


def test_the_member_of_a_worker_that_is_no_longer_listed_leaves_even_if_it_is_rank_0() -> None:
    status = job(("m0", A), ("m1", A), ("m2", A))
    before = next_step(workers(A, 0, 1, 2), status, {})
    step = next_step(workers(A, 1, 2), status, before.matches)
    assert step.request == ResizeRequested(None, 0, 0, ("m0",), PATIENCE)


def test_who_has_come_since_the_last_look_is_matched_with_what_was_wanted_then() -> None:
    early = next_step(workers(A, 0, 1), job(("m0", A), ("m1", A)), {})
    status = job(("m0", A), ("m1", A), ("m2", A))
    step = next_step(workers(A, 1, 2), status, early.matches, workers(A, 0, 1, 2))
    assert step.request == ResizeRequested(None, 0, 0, ("m0",), PATIENCE)


def test_a_full_replacement_asks_for_all_newcomers_and_names_all_who_leave() -> None:
    step = next_step(workers(B, 0, 1, 2), job(("m0", A), ("m1", A)), {})
    assert step.request == ResizeRequested(None, 3, 0, ("m0", "m1"), PATIENCE)
    assert step.hosts == {B: 3, A: 0}


def test_a_lost_member_is_not_asked_for_again_but_gets_a_slot() -> None:
    step = next_step(workers(A, 0, 1), job(("m1", A), wanted=2), {})
    assert step.request is None, "the coordinator wants two already"
    assert step.hosts == {A: 2}


def test_a_worker_that_was_lost_and_is_no_longer_listed_is_wanted_no_more() -> None:
    step = next_step(workers(A, 1), job(("m1", A), wanted=2), {"m1": workers(A, 1)[0]})
    assert step.request == ResizeRequested(None, 0, 1, (), PATIENCE)
