"""What is asked of the coordinator so that members become the workers of a list."""

from midflight.compat.kungfu.cluster import Address
from midflight.compat.kungfu.matching import PATIENCE, Step, as_it_is, next_step
from midflight.protocol.messages import MemberStatus, ResizeRequested, Status
from tests.kungfu.commands import cluster

A, B = "127.0.0.1", "127.0.0.2"


def workers(host: str, *numbers: int) -> list[Address]:
    return [Address(host, 10000 + number) for number in numbers]


def job(*members: tuple[str, str, int], wanted: int | None = None) -> tuple[Status, dict[str, int]]:
    """Members as (name, host, slot), in the order of their ranks."""
    known = tuple(
        MemberStatus(name, rank, host, 100 + rank, 5, "active")
        for rank, (name, host, _) in enumerate(members)
    )
    size = len(members) if wanted is None else wanted
    status = Status("job", "stable", "", 1, 5, size, 1, 1000, 0, known, ())
    return status, {name: slot for name, _, slot in members}


def test_nothing_is_asked_for_when_every_worker_has_its_member() -> None:
    assert next_step(workers(A, 0, 1), *job(("m0", A, 0), ("m1", A, 1))) == Step({A: 2}, None)


def test_newcomers_find_slots_only_where_they_belong() -> None:
    step = next_step([*workers(A, 0, 1), *workers(B, 0, 1)], *job(("m0", A, 0), ("m1", A, 1)))
    assert step == Step({A: 2, B: 2}, ResizeRequested(None, 2, 0, (), PATIENCE))


def test_a_host_with_fewer_workers_loses_its_last_slots() -> None:
    step = next_step(workers(A, 1), *job(("m0", A, 0), ("m1", A, 1)))
    assert step == Step({A: 2}, ResizeRequested(None, 0, 0, ("m1",), PATIENCE))


def test_the_members_of_a_host_that_is_no_longer_listed_leave_even_if_one_is_rank_0() -> None:
    step = next_step(workers(B, 0), *job(("m0", A, 0), ("m1", B, 0)))
    assert step == Step({B: 1, A: 1}, ResizeRequested(None, 0, 0, ("m0",), PATIENCE))


def test_a_full_replacement_asks_for_all_newcomers_and_names_all_who_leave() -> None:
    step = next_step(workers(B, 0, 1, 2), *job(("m0", A, 0), ("m1", A, 1)))
    assert step == Step({B: 3, A: 2}, ResizeRequested(None, 3, 0, ("m0", "m1"), PATIENCE))


def test_a_lost_member_is_not_asked_for_again_but_keeps_its_slot() -> None:
    step = next_step(workers(A, 0, 1), *job(("m1", A, 1), wanted=2))
    assert step == Step({A: 2}, None), "the coordinator wants two already"


def test_a_worker_that_was_lost_and_is_no_longer_listed_is_wanted_no_more() -> None:
    step = next_step(workers(A, 0), *job(("m0", A, 0), wanted=2))
    assert step.request == ResizeRequested(None, 0, 1, (), PATIENCE)


def test_a_size_that_was_asked_for_elsewhere_is_shown_with_the_members_that_there_are() -> None:
    before = cluster("127.0.0.1:10000", "127.0.0.1:10005", "127.0.0.2:10000")
    status, _ = job(("m0", A, 0), ("m2", B, 0), ("m3", B, 1))
    assert as_it_is(before, status) == cluster(
        "127.0.0.1:10000", "127.0.0.2:10000", "127.0.0.2:10001"
    )
