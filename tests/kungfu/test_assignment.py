"""What is asked of the coordinator so that members become the workers of a list."""

from collections.abc import Sequence

from midflight.compat.kungfu.assignment import PATIENCE, Step, as_it_is, assign, next_step
from midflight.compat.kungfu.cluster import Address
from midflight.protocol.messages import MemberStatus, ResizeRequested, Status
from tests.kungfu.commands import cluster

A, B = "127.0.0.1", "127.0.0.2"
Member = tuple[str, str, int]  # name, host, and the last digit of its port


def workers(host: str, *numbers: int) -> list[Address]:
    return [Address(host, 10000 + number) for number in numbers]


def status_of(*members: Member, wanted: int | None = None) -> Status:
    """Members in the order of their ranks."""
    known = tuple(
        MemberStatus(name, rank, host, 100 + rank, 5, "active")
        for rank, (name, host, _) in enumerate(members)
    )
    size = len(members) if wanted is None else wanted
    return Status("job", "stable", "", 1, 5, size, 1, 1000, 0, known, ())


def step_to(listed: Sequence[Address], *members: Member, wanted: int | None = None) -> Step:
    status = status_of(*members, wanted=wanted)
    before = {name: Address(host, 10000 + number) for name, host, number in members}
    return next_step(listed, status, assign(listed, status, before))


def test_nothing_is_asked_for_when_every_worker_has_its_member() -> None:
    assert step_to(workers(A, 0, 1), ("m0", A, 0), ("m1", A, 1)) == Step({A: 2}, None)


def test_newcomers_find_slots_only_where_they_belong() -> None:
    step = step_to([*workers(A, 0, 1), *workers(B, 0, 1)], ("m0", A, 0), ("m1", A, 1))
    assert step == Step({A: 2, B: 2}, ResizeRequested(None, 2, 0, (), PATIENCE))


def test_the_worker_that_is_no_longer_listed_leaves_and_not_the_last_one_of_its_host() -> None:
    step = step_to(workers(A, 1), ("m0", A, 0), ("m1", A, 1))
    assert step == Step({A: 2}, ResizeRequested(None, 0, 0, ("m0",), PATIENCE))
    step = step_to(workers(A, 0), ("m0", A, 0), ("m1", A, 1))
    assert step == Step({A: 2}, ResizeRequested(None, 0, 0, ("m1",), PATIENCE))


def test_members_are_given_the_addresses_that_nobody_has_in_the_order_of_their_ranks() -> None:
    status = status_of(("m1", A, 1), ("m5", A, 2))
    listed = workers(A, 7, 3, 5)
    assert assign(listed, status, {}) == {"m1": listed[0], "m5": listed[1]}
    kept = {"m1": listed[1], "m0": listed[0]}  # m0 is gone
    assert assign(listed, status, kept) == {"m1": listed[1], "m5": listed[0]}


def test_the_members_of_a_host_that_is_no_longer_listed_leave_even_if_one_is_rank_0() -> None:
    step = step_to(workers(B, 0), ("m0", A, 0), ("m1", B, 0))
    assert step == Step({B: 1, A: 1}, ResizeRequested(None, 0, 0, ("m0",), PATIENCE))


def test_a_full_replacement_asks_for_all_newcomers_and_names_all_who_leave() -> None:
    step = step_to(workers(B, 0, 1, 2), ("m0", A, 0), ("m1", A, 1))
    assert step == Step({B: 3, A: 2}, ResizeRequested(None, 3, 0, ("m0", "m1"), PATIENCE))


def test_a_worker_at_another_port_of_the_same_host_is_another_worker() -> None:
    step = step_to(workers(A, 1), ("m0", A, 0))
    assert step == Step({A: 2}, ResizeRequested(None, 1, 0, ("m0",), PATIENCE))


def test_a_lost_member_is_not_asked_for_again_but_keeps_its_slot() -> None:
    step = step_to(workers(A, 0, 1), ("m1", A, 1), wanted=2)
    assert step == Step({A: 2}, None), "the coordinator wants two already"


def test_a_worker_that_was_lost_and_is_no_longer_listed_is_wanted_no_more() -> None:
    step = step_to(workers(A, 0), ("m0", A, 0), wanted=2)
    assert step.request == ResizeRequested(None, 0, 1, (), PATIENCE)


def test_a_size_that_was_asked_for_elsewhere_is_shown_with_the_members_that_there_are() -> None:
    before = cluster("127.0.0.1:10000", "127.0.0.1:10005", "127.0.0.2:10000")
    status = status_of(("m0", A, 0), ("m2", B, 0), ("m3", B, 1))
    addresses = {"m0": before.workers[0], "m2": before.workers[2]}
    assert as_it_is(before, status, addresses) == cluster(
        "127.0.0.1:10000", "127.0.0.2:10000", "127.0.0.2:10001"
    )
