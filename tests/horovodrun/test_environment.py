"""The variables that horovodrun tells a process about its place."""

from midflight.compat.horovod.runner.options import dialect
from midflight.protocol.dialect import environment_of
from midflight.protocol.world import Member, World

WORLD = World(
    1,
    (
        Member("m0", "a", 0, "10.0.0.1"),
        Member("m1", "a", 1, "10.0.0.1"),
        Member("m2", "b", 0, "10.0.0.2"),
    ),
)


def test_a_process_is_told_its_place_among_all_on_its_host_and_across_hosts() -> None:
    found = environment_of(dialect(True, takes_all_slots=True), WORLD, "m2", 1234)
    assert found == {
        "HOROVOD_HOSTNAME": "b",
        "HOROVOD_RANK": "2",
        "HOROVOD_SIZE": "3",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "1234",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_ELASTIC": "1",
    }


def test_only_hosts_that_have_a_local_rank_count_for_its_cross_rank() -> None:
    second = environment_of(dialect(False, takes_all_slots=False), WORLD, "m1", 1)
    assert (second["HOROVOD_CROSS_RANK"], second["HOROVOD_CROSS_SIZE"]) == ("0", "1")
    assert "HOROVOD_ELASTIC" not in second
